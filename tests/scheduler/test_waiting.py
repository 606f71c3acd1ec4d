"""The two waiting lines."""

from simkv.scheduler.waiting import FcfsQueue, PriorityQueue
from tests.scheduler.drive import ids, request_of


def test_fcfs_is_a_line_and_victims_go_to_its_front():
    queue = FcfsQueue()
    a, b, c, d = (request_of(i, 1) for i in range(4))
    queue.add(a)
    queue.add(b)
    queue.put_back(c)
    queue.put_back(d)
    assert ids(queue) == [3, 2, 0, 1]
    queue.remove(d)
    queue.remove(a)
    assert ids(queue) == [2, 1]
    assert len(queue) == 2


def test_priority_orders_by_priority_then_arrival_then_id_victims_too():
    queue = PriorityQueue()
    requests = [
        request_of(0, 1, priority=2, arrival=0),
        request_of(1, 1, priority=1, arrival=5),
        request_of(2, 1, priority=1, arrival=3),
        request_of(3, 1, priority=1, arrival=3),
    ]
    for request in requests[:3]:
        queue.add(request)
    queue.put_back(requests[3])
    assert ids(queue) == [2, 3, 1, 0]
    queue.remove(requests[3])
    assert ids(queue) == [2, 1, 0]
