"""A peer's part of a measurement, run by the Python of the peer's own environment.

Usage: python bench/run_peer.py PEER JOB, JOB being a harness.plan.Job as JSON.
"""

import sys

import peers
from harness import lines, plan


def main() -> None:
    """Runs the job and reports its progress on standard output."""
    peers.worker(sys.argv[1]).run(plan.Job.from_json(sys.argv[2]), lines.Reporter())


main()
