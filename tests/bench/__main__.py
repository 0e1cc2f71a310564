"""`make bench`: every benchmark that a machine without a GPU can run, one after the other.

Never two at once: llama.cpp's threads spin, and the second would measure the first.
"""

from tests.bench import scheduler_cost, walk_overhead, whole_stack


def main() -> None:
    """Print each table under its name."""
    for bench in (scheduler_cost, walk_overhead, whole_stack):
        print(f"\n== {bench.__name__.rpartition('.')[2]}")
        bench.main()


if __name__ == "__main__":
    main()
