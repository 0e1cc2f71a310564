"""The inventory of a machine keeps to the limits that were set for it."""

from pathlib import Path

import pytest

from appliance import devices


def test_this_machine_has_a_processor_memory_and_disk(tmp_path: Path) -> None:
    inventory = devices.take_inventory()
    assert inventory.cpu.num_cores >= 1
    assert 0 < inventory.memory.available_bytes <= inventory.memory.total_bytes
    assert devices.free_disk_bytes(tmp_path) > 0


def test_free_disk_is_told_for_a_folder_that_is_still_to_be_made(tmp_path: Path) -> None:
    assert devices.free_disk_bytes(tmp_path / "not" / "yet") > 0


@pytest.mark.parametrize(
    ("written", "cores"),
    [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 0), ("", 0)],
)
def test_a_control_groups_share_of_time_counts_as_whole_cores(
    tmp_path: Path, written: str, cores: int
) -> None:
    (tmp_path / "cpu.max").write_text(written)
    assert devices._cgroup_cores(tmp_path) == cores


def test_a_control_groups_memory_limit_is_the_machines_size(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    memory = devices._memory(tmp_path)
    assert (memory.total_bytes, memory.available_bytes) == (1_000_000, 600_000)


def test_files_that_the_kernel_keeps_a_copy_of_take_no_memory_from_anybody(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text(
        "anon 300000\nfile 600000\ninactive_file 400000\nactive_file 100000\n"
    )
    assert devices._memory(tmp_path).available_bytes == 600_000


def test_without_a_control_group_the_machine_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert devices._memory(tmp_path).total_bytes > 1_000_000


def test_only_the_flags_that_matter_are_kept(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma vme\n")
    assert devices._flags(cpuinfo) == ("avx2", "fma")
    assert devices._flags(tmp_path / "none") == ()
