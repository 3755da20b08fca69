"""The server over real sockets: what it promises, played against it and against the stock one."""
