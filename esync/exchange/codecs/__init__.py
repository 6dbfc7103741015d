"""Codecs, which pack the weights in messages between workers and parameter servers.

`base` has the interface, and `factory` chooses the codec of a specification. `uncompressed` sends
float32, `buckets` packs buckets into fixed sizes (`quantization`), and `sparse_difference` sends
sparse messages (`sparse`, `sparse_messages`, `shards`). `outbox` keeps packed answers. May import
`base` and, of `protocol`, the layout and the headers.
"""
