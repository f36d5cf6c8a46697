"""DECIDES AND REMEMBERS: intake, the gate, approvals and the ledger. Never executes a tool."""
