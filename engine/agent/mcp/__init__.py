"""Tool servers by the Model Context Protocol: programs in the notebook's sandbox, or services behind an address.

The protocol is the official SDK's (`mcp`), imported when a server is first spoken to. What a server says of itself, and
what it answers, is data: bounded, marked as its own words, and never a permission.
"""
