"""Codecs, which pack the weights of a message on workers and on parameter servers.

`base` has the interface, `factory` makes the codecs that a specification asks for. `uncompressed`
sends float32, `buckets` packs into fixed sizes (`quantization`), `sparse_difference` sends sparse
messages (`sparse`, `sparse_messages`, `shards`), and `outbox` keeps packed answers. May import
`base` and, of `protocol`, the layout and the headers.
"""
