"""Agent turns: rounds of model, tool calls, stored, yield point. What runs here belongs to no viewer."""
