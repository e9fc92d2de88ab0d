"""A sweep over the workers of a Dask cluster: python3 dask_sweep.py [tcp://SCHEDULER:8786]; without a scheduler, on this machine.

Needs dask (Debian: python3-dask, and python3-distributed for a cluster), and the package orrery on every worker.
"""

import sys

import dask
import orrery

SCENARIO = {
    "orrery": 1,
    "kind": "collective",
    "cluster": {"nodes": 2, "node": "dgx-h100"},
    "collective": {"op": "all-reduce", "algorithm": "ring", "size": "1 MiB"},
}
SETS = [{"collective.algorithm": name, "collective.size": size} for name in ("ring", "tree") for size in ("64 KiB", "16 MiB")]


def main():
    if len(sys.argv) > 1:
        from dask.distributed import Client

        Client(sys.argv[1])  # what is computed from here on goes there
    runs = [dask.delayed(orrery.run)(SCENARIO, set=one) for one in SETS]
    for one, summary in zip(SETS, dask.compute(*runs)):
        print(*one.values(), f"{1e6 * summary.value('collective_time_s'):.1f} us")


if __name__ == "__main__":
    main()
