"""One decision on given machines: which gangs start, wait, move or leave. Pure; arrays with do/undo inside."""
