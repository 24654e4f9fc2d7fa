"""Sizes, jobs and the order of runs."""

from harness import plan
from peers import gemm, hf


def test_interleaving_goes_round_by_round():
    assert list(plan.interleave("ABC", 2)) == [
        (1, "A"),
        (1, "B"),
        (1, "C"),
        (2, "A"),
        (2, "B"),
        (2, "C"),
    ]


def test_flop_are_those_of_the_products_that_the_peak_is_measured_with():
    for shape in plan.SIZES.values():
        products = sum(2 * a * b for a, b in gemm.products(shape))
        assert shape.train_flop_per_token == 3 * shape.layers * products


def test_minilm_takes_64_mflop_per_token():
    assert plan.SIZES["minilm"].train_flop_per_token == 63_700_992


def test_jobs_survive_json():
    job = plan.Job("grouped", "base", "full", 6, "/data", "/scratch", {"graph": "/g"}, [7, 8], True)
    assert plan.Job.from_json(job.to_json()) == job
    assert job.total_steps == 6 + plan.GPU_WARM_STEPS


def test_a_gpu_is_waited_for_where_a_time_is_taken():
    job = plan.Job("v", steps=5, gpu=True)
    assert [n for n in range(1, job.total_steps + 1) if job.counts(n)] == [1, 20, 25]
    assert plan.Job("v", steps=5).total_steps == 5 + plan.WARM_STEPS


def test_grouped_batches_are_spread_over_all_lengths():
    """28 batches are sorted together; 4 timed ones come from each quarter of them."""
    order = list(range(plan.EXAMPLES))
    taken = list(hf.Spread(order, 4, plan.EXAMPLES, plan.WARM_STEPS))
    batches = [
        taken[i : i + plan.BATCH]
        for i in range(plan.WARM_STEPS * plan.BATCH, 6 * plan.BATCH, plan.BATCH)
    ]
    assert [batch[0] // plan.BATCH for batch in batches] == [3, 10, 17, 24]
    assert all(batch == list(range(batch[0], batch[0] + plan.BATCH)) for batch in batches)


def test_long_runs_take_grouped_batches_as_they_come():
    order = list(range(plan.EXAMPLES))
    assert list(hf.Spread(order, 100, plan.EXAMPLES, plan.WARM_STEPS)) == order


def test_every_worker_is_found_by_its_name():
    import peers

    for peer in (*peers.TRAIN, *peers.INPUT, *peers.DENSE, *peers.PREDICT, *peers.STRATEGY):
        if isinstance(peer, peers.Worker):
            assert peers.worker(peer.name) is peer
