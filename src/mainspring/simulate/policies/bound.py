"""Requests bound to a node at arrival: round robin and least outstanding tokens, each node a first-in-first-out queue
that batches what waits. What most load balancers in front of inference servers do; nothing is ever refused.
"""

from mainspring.simulate.policies.base import Baseline, Waiting, Worker


class RoundRobin(Baseline):
    def enter(self, item: Waiting, now_s: float) -> None:
        worker = self.choose(item, self.serving(item))
        item.node = worker.spec.id
        worker.queue.append(item)
        worker.tokens += item.request.view_tokens + item.rows

    def choose(self, item: Waiting, workers: list[Worker]) -> Worker:
        return workers[item.seq % len(workers)]

    def decide(self, now_s: float) -> None:
        for worker in self.idle():
            batch: list[Waiting] = []
            while worker.queue:
                item = worker.queue[0]
                if not item.gone:
                    if not worker.has_slot(item) or not worker.fits([*batch, item]):
                        break
                    batch.append(item)
                worker.queue.popleft()
                if item.request.is_lease and not item.gone:
                    break
            if batch:
                self.send(worker, batch, now_s)


class LeastTokens(RoundRobin):
    def choose(self, item: Waiting, workers: list[Worker]) -> Worker:
        return min(workers, key=lambda worker: (worker.tokens, worker.spec.id))
