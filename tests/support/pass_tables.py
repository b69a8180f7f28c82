"""A pass's tables the plain way, an entry at a time: what those of `backend.cuda` must equal to the bit."""

from mainspring.backend.cuda.job import Job, Scratch
from mainspring.backend.cuda.layout import Shape
from mainspring.backend.cuda.state import CudaState

MEMORY, CHUNK, ZERO = 3, 64, -1
Rows = list[tuple[int, ...]]


def up(number: int, by: int) -> int:
    return -(-number // by)


def plain_tables(job: Job, shape: Shape, scratch: Scratch) -> dict[str, list]:
    """Entries of each table, without the padding behind them."""
    views = [len(tokens) for tokens in job.view_tokens]
    past = [0 if state is None else state.length for state in job.states]
    before = [
        [-2 - n * MEMORY - j if length else ZERO for j in range(MEMORY)] for n, length in enumerate(past)
    ]  # what precedes a view
    begins = [sum(views[:n]) for n in range(len(views))]
    tables: dict[str, list] = {
        "tokens": [t for tokens in job.view_tokens for t in tokens.tolist()],
        "positions": [p + i for n, p in zip(views, past, strict=True) for i in range(n)],
        "owners": [v for v, n in enumerate(views) for _ in range(n)],
        "taps": [
            taps(i, begin, old) for n, begin, old in zip(views, begins, before, strict=True) for i in range(n)
        ],
        "tails": [taps(n, begin, old) for n, begin, old in zip(views, begins, before, strict=True)],
        "chunks": [(b + i, min(CHUNK, n - i)) for n, b in zip(views, begins, strict=True) for i in range(0, n, CHUNK)],
        "spans": [(begins[v], n, sum(up(m, CHUNK) for m in views[:v])) for v, n in enumerate(views)],
        "segments": segments(views, begins, shape.grid.segment_rows) if shape.segments else [],
        "view_items": view_items(views, past, begins, shape),
    }  # fmt: skip
    tables["places"] = list(tables["positions"])
    branch_tables(tables, job, shape, [p + n for p, n in zip(past, views, strict=True)])
    tables |= addresses(job, views, past, scratch)
    return tables


def taps(row: int, begin: int, before: list[int]) -> tuple[int, ...]:
    """Codes of the rows before row `row` of a sequence that begins at `begin`."""
    return tuple(begin + at if at >= 0 else before[at + MEMORY] for at in range(row - MEMORY, row))


def segments(views: list[int], begins: list[int], least: int) -> Rows:
    found: Rows = []
    first_chunk = 0
    for v, (n, begin) in enumerate(zip(views, begins, strict=True)):
        chunks = up(n, CHUNK)
        size = max(up(chunks, max(min(up(chunks * CHUNK, least), 4), 1)), 1)
        count = max(up(chunks, size), 1)
        for k in range(count):
            start = k * size * CHUNK
            found.append((begin + start, min(size * CHUNK, n - start), first_chunk + k * size, v, k, count - 1 - k))
        first_chunk += chunks
    return found


def view_items(views: list[int], past: list[int], begins: list[int], shape: Shape) -> Rows:
    rows, block = shape.grid.view_rows, shape.grid.view_keys
    items = []
    for v, (n, p, begin) in enumerate(zip(views, past, begins, strict=True)):
        for i in range(0, n, rows):
            count = min(rows, n - i)
            items.append((begin + i, count, v, 0, (p + i) // block * block, p + i + count, 0, 0, 1))
    return sorted(items, key=lambda item: -item[5])


def branch_tables(tables: dict[str, list], job: Job, shape: Shape, ends: list[int]) -> None:
    lengths, parents, at = job.branch_lengths.tolist(), job.branch_views.tolist(), shape.view_rows
    begins = [sum(lengths[:b]) for b in range(len(lengths))]
    cases = list(zip(lengths, parents, begins, strict=True))
    first, last = begins, [b + n - 1 for b, n in zip(begins, lengths, strict=True)]
    of_row = [b for n, _, b in cases for _ in range(n)]
    for name, entries in {
        "tokens": job.branch_tokens.tolist(),
        "positions": [ends[v] + i for n, v, _ in cases for i in range(n)],
        "owners": [-1] * shape.branch_rows,
        "places": list(range(shape.branch_rows)),
        "taps": [taps(i, at + b, list(tables["tails"][v])) for n, v, b in cases for i in range(n)],
    }.items():
        padding: list = [{"owners": shape.views, "taps": (ZERO,) * MEMORY}.get(name, 0)] * (at - len(tables[name]))
        tables[name] += padding + entries
    rows_of = [v for n, v, _ in cases for _ in range(n)]
    items, cut = branch_items(rows_of, of_row, list(range(len(of_row))), ends, shape)
    last_items, last_cut = branch_items(parents, first, last, ends, shape)
    moved = [(item[0] + at, *item[1:]) for item in items]
    view_items = tables["view_items"] + [(0,) * 9] * (shape.view_items - len(tables["view_items"]))
    tables |= {
        "fork_spans": list(zip(begins, lengths, strict=True)), "parents": parents, "first": of_row,
        "last": list(range(len(of_row))), "items": items, "tiles": cut, "last_first": first, "last_last": last,
        "last_rows": [row + at for row in last], "last_items": last_items, "last_tiles": last_cut,
        "label_rows": [b for b, n in enumerate(job.label_counts.tolist()) for _ in range(n)],
        "label_ids": job.label_ids.tolist(), "mixed": view_items + moved if shape.mixed else [],
    }  # fmt: skip


def branch_items(
    owners: list[int], first: list[int], last: list[int], ends: list[int], shape: Shape
) -> tuple[Rows, Rows]:
    """Items and tiles of query rows, those of one view side by side."""
    rows, block = shape.grid.branch_rows, shape.grid.branch_keys
    items: Rows = []
    cut: Rows = []
    row = 0
    while row < len(owners):
        count = 1
        while row + count < len(owners) and count < rows and owners[row + count] == owners[row]:
            count += 1
        keys = ends[owners[row]]
        step = max(1408, up(up(keys, 6), block) * block)
        parts = max(up(keys, step), 1)
        cut.append((row, count, len(items), parts))
        for begin in range(0, parts * step, step):
            end = min(begin + step, keys)
            own = (first[row], last[row + count - 1] + 1) if end == keys else (0, 0)
            items.append((row, count, owners[row], begin, begin + (end - begin) // block * block, end, *own, parts))
        row += count
    return items, cut


def addresses(job: Job, views: list[int], past: list[int], scratch: Scratch) -> dict[str, list]:
    tables: dict[str, list] = {
        name: [0 if name in ("history", "tail_to") else (0, 0)] * len(views)
        for name in ("history", "tail_to", "sources", "targets", "forks", "stores")
    }
    row = 0
    for n, (state, length) in enumerate(zip(job.states, views, strict=True)):
        if state is None:
            target, store = (scratch.recurrent + n * scratch.recurrent_view, 0), (scratch.kv + row * scratch.kv_row, 0)
            row += length
        else:
            target, store = pair(state, "recurrent"), pair(state, "kv")
        if state is not None and past[n]:
            tables["history"][n], tables["sources"][n] = state.conv_address(state.parity), target
        if state is not None and length:
            tables["tail_to"][n] = state.conv_address(1 - state.parity)
        if length:
            tables["targets"][n] = target
        if length or past[n]:
            tables["forks"][n] = target
        if length or state is not None:
            tables["stores"][n] = store
    return tables


def pair(state: CudaState, name: str) -> tuple[int, int]:
    """A state's address and the bytes from one layer's part to the next's."""
    array = getattr(state, name)
    return array.data_ptr(), array.stride(0) * array.element_size()
