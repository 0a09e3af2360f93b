"""Which GPUs MIG can cut, and how: package data, as of August 2026.

Sources: NVIDIA MIG user guide; NVIDIA/gpu-operator@a22dbf6 and NVIDIA/mig-parted@bd7160f (profile names, device
ids); NVIDIA/go-nvlib@3c16156 (naming rule); real `nvidia-smi mig -lgip/-lgipp` listings (placements and MiB of A30,
A100, H100, RTX PRO 6000; other placements follow the family's template; MiB of slices of H200, B200 and GB200);
EC2 DescribeInstanceTypes (GPU names); NVIDIA/gpu-operator PR#1303 (GB200 under drivers that name 189 GB).
RTX PRO 4500 is left out: no table of its profiles was seen but for their number.
What a live node reports wins over this table: a driver may rename profiles.
"""

from typing import NamedTuple

FAMILY_MIB_SHARE = 0.86
"""Usable part of a slice's nominal memory where no listing was seen; the smallest share observed (GB200 1g.23gb)."""


class ProfileRow(NamedTuple):
    """One line of a family's template: slices, most instances on a GPU, start positions and engines taken."""

    shape: str
    """Name without its memory: `1g`, `1g+me`; a wide slice repeats its compute number (`1g`) with more memory."""
    memory_slices: int
    most: int
    starts: tuple[int, ...]
    size: int
    media: tuple[int, int, int] = (0, 0, 0)
    """NVDEC, JPEG and OFA engines."""


class MigFamily(NamedTuple):
    """A way of cutting that several GPU models share."""

    compute_slices: int
    memory_slices: int
    units: int
    """Placement units of a GPU; instances occupy disjoint ranges of them."""
    media: tuple[int, int, int]
    profiles: tuple[ProfileRow, ...]


class ModelRow(NamedTuple):
    """A GPU model; `gib` is what profile names are computed from."""

    id: str
    title: str
    family: MigFamily
    gib: int
    gpu_name: str
    """Value of the label `karpenter.k8s.aws/instance-gpu-name`; empty when no machine type carries it."""
    device_ids: tuple[str, ...]
    products: tuple[str, ...]
    """Values of the label `nvidia.com/gpu.product`."""
    mib: dict[int, int]
    """Usable memory by memory slices, where a listing was seen (`nvidia-smi mig -lgip`)."""


_UNLIMITED = (99, 99, 99)
SEVEN = MigFamily(
    compute_slices=7,
    memory_slices=8,
    units=8,
    media=_UNLIMITED,  # never the binding limit: see tests/model/mig
    profiles=(
        ProfileRow("1g", 1, 7, (0, 1, 2, 3, 4, 5, 6), 1),
        ProfileRow("1g+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
        ProfileRow("1g", 2, 4, (0, 2, 4, 6), 2),
        ProfileRow("2g", 2, 3, (0, 2, 4), 2),
        ProfileRow("3g", 4, 2, (0, 4), 4),
        ProfileRow("4g", 4, 1, (0,), 4),
        ProfileRow("7g", 8, 1, (0,), 8),
    ),
)
FOUR = MigFamily(
    compute_slices=4,
    memory_slices=4,
    units=4,
    media=(4, 1, 1),
    profiles=(
        ProfileRow("1g", 1, 4, (0, 1, 2, 3), 1),
        ProfileRow("1g+me", 1, 1, (0, 1, 2, 3), 1, (1, 1, 1)),
        ProfileRow("2g", 2, 2, (0, 2), 2, (2, 0, 0)),
        ProfileRow("2g+me", 2, 1, (0, 2), 2, (2, 1, 1)),
        ProfileRow("4g", 4, 1, (0,), 4, (4, 1, 1)),
    ),
)
RTX_PRO = MigFamily(
    compute_slices=4,
    memory_slices=4,
    units=12,
    media=(4, 4, 1),
    profiles=(
        ProfileRow("1g", 1, 4, (0, 3, 6, 9), 3, (1, 1, 0)),
        ProfileRow("1g+me", 1, 1, (0, 3, 6, 9), 3, (1, 1, 1)),
        ProfileRow("1g+gfx", 1, 4, (0, 3, 6, 9), 3, (1, 1, 0)),
        ProfileRow("1g+me.all", 1, 1, (0, 3, 6, 9), 3, (4, 4, 1)),
        ProfileRow("1g-me", 1, 4, (0, 3, 6, 9), 3),
        ProfileRow("2g", 2, 2, (0, 6), 6, (2, 2, 0)),
        ProfileRow("2g+gfx", 2, 2, (0, 6), 6, (2, 2, 0)),
        ProfileRow("2g+me.all", 2, 1, (0, 6), 6, (4, 4, 1)),
        ProfileRow("2g-me", 2, 2, (0, 6), 6),
        ProfileRow("4g", 4, 1, (0,), 12, (4, 4, 1)),
        ProfileRow("4g+gfx", 4, 1, (0,), 12, (4, 4, 1)),
    ),
)
RTX_PRO_5000 = MigFamily(
    compute_slices=4,
    memory_slices=4,
    units=4,
    media=(3, 1, 1),
    profiles=(
        ProfileRow("1g", 1, 1, (0,), 1, (1, 1, 0)),
        ProfileRow("1g+me", 1, 1, (0,), 1, (1, 1, 1)),
        ProfileRow("1g+gfx", 1, 1, (0,), 1, (1, 1, 0)),
        ProfileRow("1g-me", 1, 3, (1, 2, 3), 1),
        ProfileRow("2g-me", 2, 1, (2,), 2),
        ProfileRow("4g", 4, 1, (0,), 4, (3, 1, 1)),
        ProfileRow("4g+gfx", 4, 1, (0,), 4, (3, 1, 1)),
    ),
)
"""Counts and engines of the MIG user guide, which mig-parted's tests have as well; no listing of placements was seen.

Where they are is the one way that gives these counts: one quarter has the engines, the others are for profiles without.
"""

MODELS: tuple[ModelRow, ...] = (
    ModelRow("a30-24gb", "NVIDIA A30", FOUR, 24, "", ("0x20B7",), ("NVIDIA-A30",), {1: 5949, 2: 11967, 4: 24064}),
    ModelRow(
        "a100-40gb",
        "NVIDIA A100 40 GB",
        SEVEN,
        40,
        "a100",
        ("0x20B0", "0x20B1", "0x20F1", "0x20F6"),
        (
            "NVIDIA-A100-SXM4-40GB",
            "NVIDIA-A100-PCIE-40GB",
            "A100-SXM4-40GB",
            "A100-PCIE-40GB",
            "NVIDIA-A800-40GB-Active",
        ),
        {1: 4864, 2: 9856, 4: 19968, 8: 40192},
    ),
    ModelRow(
        "a100-80gb",
        "NVIDIA A100 80 GB",
        SEVEN,
        80,
        "a100",
        ("0x20B2", "0x20B5", "0x20F3", "0x20F5"),
        (
            *("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "A100-SXM4-80GB", "A100-80GB-PCIe"),
            *("NVIDIA-A800-SXM4-80GB", "NVIDIA-A800-80GB-PCIe"),
        ),
        {1: 9856, 2: 19968, 4: 40192, 8: 80384},
    ),
    ModelRow("pg506-96gb", "NVIDIA PG506 96 GB", SEVEN, 96, "", ("0x20B6",), (), {}),
    ModelRow(
        "h100-80gb",
        "NVIDIA H100 80 GB",
        SEVEN,
        80,
        "h100",
        ("0x2330", "0x2331", "0x2322", "0x2324"),
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H800", "NVIDIA-H800-PCIe"),
        {1: 9984, 2: 20096, 4: 40448},
    ),
    ModelRow(
        "h100-94gb",
        "NVIDIA H100 94 GB (NVL)",
        SEVEN,
        94,
        "",
        ("0x2321", "0x233A"),
        ("NVIDIA-H100-NVL", "NVIDIA-H100-94GB-HBM2e", "NVIDIA-H800-NVL"),
        {4: 47493, 8: 95355},
    ),
    ModelRow(
        "h100-96gb",
        "NVIDIA H100 / GH200 96 GB",
        SEVEN,
        96,
        "",
        ("0x2342", "0x233D"),
        ("NVIDIA-GH200-480GB", "NVIDIA-GH200-96GB-HBM3", "NVIDIA-H100-96GB-HBM3"),
        {},
    ),
    ModelRow("h20-96gb", "NVIDIA H20", SEVEN, 96, "", ("0x2329",), ("NVIDIA-H20",), {}),
    ModelRow("gh200-144gb", "NVIDIA GH200 144 GB", SEVEN, 144, "", ("0x2348",), ("NVIDIA-GH200-144GB-HBM3e",), {}),
    # 16.00 GiB: listed for 1g.18gb; of the NVL no listing was seen.
    ModelRow("h200-141gb", "NVIDIA H200", SEVEN, 141, "h200", ("0x2335",), ("NVIDIA-H200",), {1: 16384}),
    ModelRow("h200-nvl-141gb", "NVIDIA H200 NVL", SEVEN, 141, "", ("0x233B",), ("NVIDIA-H200-NVL",), {}),
    # 20.50 and 44.25 GiB: listing in NVIDIA/gpu-operator PR#1351; one in PR#1242 has 22.00, and the lower counts.
    ModelRow("b200-180gb", "NVIDIA B200", SEVEN, 180, "b200", ("0x2901",), ("NVIDIA-B200",), {1: 20992, 2: 45312}),
    # 20.00 and 45.50 GiB: listing in NVIDIA/gpu-operator PR#1303 (1g.24gb, 1g.47gb); one in NVIDIA/mig-parted#227 has
    # 22.00 (1g.23gb), and the lower counts. The same GPU is two models, since profile names come from the memory that
    # the driver names.
    ModelRow("gb200-186gb", "NVIDIA GB200", SEVEN, 186, "gb200", ("0x2941",), ("NVIDIA-GB200",), {1: 20480, 2: 46592}),
    ModelRow(
        "gb200-189gb",
        "NVIDIA GB200 under a driver that names 189 GB",
        SEVEN,
        189,
        "gb200",
        ("0x2941",),
        ("NVIDIA-GB200",),
        {1: 20480, 2: 46592},
    ),
    ModelRow("b300-269gb", "NVIDIA B300", SEVEN, 269, "b300", ("0x3182",), ("NVIDIA-B300-SXM6-AC", "NVIDIA-B300"), {}),
    ModelRow("gb300-278gb", "NVIDIA GB300", SEVEN, 278, "", ("0x31C2",), ("NVIDIA-GB300",), {}),
    ModelRow(
        "rtx-pro-5000-blackwell-48gb",
        "NVIDIA RTX PRO 5000 Blackwell",
        RTX_PRO_5000,
        48,
        "",
        ("0x2BB3",),
        ("NVIDIA-RTX-PRO-5000-Blackwell",),
        {},
    ),
    ModelRow(
        "rtx-pro-6000-blackwell-96gb",
        "NVIDIA RTX PRO 6000 Blackwell",
        RTX_PRO,
        96,
        "rtx-pro-server-6000",
        ("0x2BB5",),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        ),
        {1: 24187, 2: 48517, 4: 97280},
    ),
)
