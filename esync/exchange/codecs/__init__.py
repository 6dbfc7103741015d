"""How the weights of a message are packed: on workers and on parameter servers."""
