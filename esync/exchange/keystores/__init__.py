"""What carries the messages of the protocol between workers and parameter servers."""
