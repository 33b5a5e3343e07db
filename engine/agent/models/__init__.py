"""Models: what replies to a conversation. `runbook` needs no key and no network; the SDKs are imported at first use."""
