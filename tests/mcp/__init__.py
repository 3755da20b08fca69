"""MCP servers as tools: real servers, sound and hostile, over both transports."""
