"""The hybrid network on an NVIDIA GPU: one packed forward a pass on our own kernels and the library's products.

backend   the protocol: handles, pieces, errors
job       what one forward is to run, and the tables that are its own: ids, addresses
lengths   a pass's lengths and its shape, kept where they may come again
fixed     the tables that follow from lengths, laid once and then copied
questions what of them follows from the branches alone
layout    sizes and places of all tables in one buffer
buckets   shapes that passes of about one size share
network   the forward on those tables; no host work that depends on the device
graphs    small passes replayed by bucket
state     what a view leaves behind
memory    how many rows a pass may have
explain   which device, type and kernels will be used, and why
"""
