"""The network of a sandbox through the host, which knows the names of hosts and each request."""
