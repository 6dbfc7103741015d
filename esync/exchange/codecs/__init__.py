"""Codecs: how the weights of a message are packed, on workers and on parameter servers.

`base` has the interface, `choice` finds the codecs that a specification asks for. `none` sends
float32, `buckets` packs into fixed sizes (`quantization`), `top_k` and `sparse_difference` send
sparse messages (`sparse`, `sparse_messages`, `shards`), and `outbox` keeps packed answers. May
import `base` and, of `protocol`, the layout and the headers.
"""
