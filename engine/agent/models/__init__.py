"""Models: what replies to a conversation. `runbook` needs no key and no network."""
