"""What to collect next, each with the command that gets it.

Why: "insufficient evidence" is only of use to somebody who then knows what to type. How: rules name
what would settle their question by these words, so that the same thing is always asked for alike.

Commands: journalctl(1), nvidia-smi(1), mlxlink and ethtool(8), py-spy, torch's worker server
(torch/distributed/elastic/control_plane.py) and flight recorder, ipmitool(1).
"""

from typing import Final

KERNEL_LOG: Final = "the kernel log of its node: journalctl -k -o json"
KERNEL_LOGS: Final = "the kernel logs of all nodes of the job: journalctl -k -o json"
GPU_STATE: Final = "the state of its GPU: nvidia-smi -q"
NODE_GPUS: Final = "the state of the node's GPUs: nvidia-smi -q"
NVLINK_ERRORS: Final = "the NVLink errors of every GPU: nvidia-smi nvlink -e"
PEER_XIDS: Final = "the Xids of the GPUs at the links' other ends: journalctl -k | grep -i xid"
NAME_OF_PEER: Final = "what the name means on each host: getent hosts NAME, cat /etc/resolv.conf"
SERVICE_LOG: Final = "the service's own log: journalctl -u UNIT"
FABRIC_MANAGER_LOG: Final = "the fabric manager's log: journalctl -u nvidia-fabricmanager"
PYTHON_STACK: Final = "the Python stack of the rank: py-spy dump --pid PID"
RANK_ENDED: Final = "the rank's error output and exit status: torchrun --tee 3, sacct -j JOB"
RANKS_OUTPUT: Final = "the ranks' error output: torchrun --tee 3"
ALL_DUMPS: Final = "flight-recorder dumps of every rank: TORCH_NCCL_DUMP_ON_TIMEOUT=1"
DUMPS_AT_ONCE: Final = "dumps of all ranks taken at one moment: TORCH_NCCL_DUMP_ON_TIMEOUT=1"
DUMPS_LATER: Final = "dumps of all ranks taken a minute later: TORCH_NCCL_DUMP_ON_TIMEOUT=1"
LINK_COUNTERS: Final = "NIC and NVLink counters, twice: ethtool -S DEV, nvidia-smi nvlink -e"
TRANSCEIVERS: Final = "its transceivers: mlxlink -d DEV -m, ethtool -m DEV"
BOTH_ENDS: Final = "the logs of both ends: journalctl -k, show logging"
CLOCK_REASONS: Final = "clocks of its GPU: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE"
HOST_PRESSURE: Final = "pressure of its host: cat /proc/pressure/{cpu,memory,io}; vmstat 1 10"
HOST_PROCESSES: Final = "the processes of the host by CPU time: top -b -n 1 -o TIME+"
PROFILE: Final = "a profile of the rank: py-spy record --pid PID, torch.profiler"
PAUSE_COUNTERS: Final = "pause counters of every switch, by priority: show pfc counters"
NIC_BUFFERS: Final = "the NICs' drops and buffers: ethtool -S DEV | grep -E 'pause|discard|out_of'"
SWITCH_COUNTERS: Final = "the switches' counters: show interfaces counters errors"
MANAGEMENT_NETWORK: Final = "whether the management network reaches them: ping, ssh"
CONSOLE: Final = "the node's console and power state: ipmitool chassis status, sol activate"
BOARD_LOG: Final = "the board's event log: ipmitool sel elist"
GPU_OF_RANK: Final = "which GPU the rank ran on: NCCL_DEBUG=INFO prints busId, nvidia-smi -q"
SECOND_READING: Final = "the same counters again some minutes later: only what they rise by counts"
MEMORY_LEFT: Final = (
    "the host's memory and its kernel's own words: free -h, journalctl -k | grep -i oom"
)
PEER_MEMORY: Final = "the modules for GPU memory: lsmod | grep peermem, ibv_devinfo, uname -r"
DEVICE_ACCESS: Final = "who may open it: ls -l /dev/infiniband, the container's devices"
PACKET_SIZES: Final = "the size of packets along the way: ip link, ibv_devinfo, ping -M do -s 8972"
OPEN_FILES: Final = "the limit on open files where the job runs: ulimit -n"
LOCKED_MEMORY: Final = "the limit on locked memory where the job runs: ulimit -l"
ONE_RUN_EACH: Final = "a run that differs in one release or setting only"
PAIR_TESTS: Final = (
    "the same test on other pairs, and with its members swapped: all_reduce_perf, ib_write_bw"
)
GID_IN_USE: Final = (
    "the GID index in use: NCCL_DEBUG=INFO with NCCL_IB_GID_INDEX, show_gids on both hosts"
)
ROUTE_TO_PEER: Final = "the way to the peer's address: ip route get ADDRESS on both hosts"
GPU_DIAGNOSIS: Final = "a test of its GPU: dcgmi diag -r 3"
BATCH: Final = "the batch that it had: the sampler's state, torch.save of its inputs"
SETTING_HISTORY: Final = "who changed the setting: journalctl, the configuration management's log"
WHO_STOPPED: Final = "who sent the signal: bpftrace -e 'tracepoint:signal:signal_generate', auditd"
WHO_SUSPENDED: Final = "whether somebody suspended it: scontrol show job, docker ps"
SERVER_LOG: Final = "the file server's own log"
OTHER_CLIENT: Final = "the kernel log of another client of that server: journalctl -k"


def dump_of(rank: int) -> str:
    """The flight-recorder dump of one rank."""
    return f"the flight-recorder dump of rank {rank}"
