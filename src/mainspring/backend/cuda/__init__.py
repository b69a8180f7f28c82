"""The hybrid network on an NVIDIA GPU: one packed forward a pass on our own kernels and the library's products.

backend   the protocol: handles, pieces, errors
layout    a pass as index tables in one buffer
questions what of them follows from the branches alone
buckets   shapes that passes of about one size share
network   the forward on those tables; no host work that depends on the device
graphs    small passes replayed by bucket
state     what a view leaves behind
memory    how many rows a pass may have
explain   which device, type and kernels will be used, and why
"""
