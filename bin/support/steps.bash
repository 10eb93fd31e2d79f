# Shared by bin/setup, bin/demo and bin/test: packages, and steps that say what they do and how long it took.
# Sourced, never run. Works in a plain Debian with nothing but Rust; safe to call again and again.

set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT" || exit 1

# Packages that building a checkout needs, and those that its tests and lints need as well.
BUILD_PACKAGES=(build-essential procps ruby ruby-dev rake libclang1-19 libclang-common-19-dev)
TEST_PACKAGES=(bundler ruby-rspec ruby-parallel rubocop yard ruby-nokogiri libjemalloc2 ruby-rack puma ruby-railties ruby-sidekiq redis-server ruby-rbtrace gnuplot-nox faketime)
# Used by some specs, which are skipped without them and say so.
EXTRA_TEST_PACKAGES=(chromium ruby-rmagick kramdown asciidoctor ruby-sequel ruby-sqlite3 ruby-activerecord ruby-stackprof heaptrack ruby-get-process-mem libtcmalloc-minimal4 libtcmalloc-minimal4t64 libmimalloc2.0 libmimalloc3 debootstrap wrk valgrind)

FAILED_STEPS=()
DONE_STEPS=0
STARTED=$SECONDS

say() { printf '%s\n' "$*"; }

# A human duration from seconds.
duration() {
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %02d s' "$(($1 / 60))" "$(($1 % 60))"; fi
}

# step "What it does" command…: prints the beginning and the end, records a failure, and returns the command's status.
step() {
  local title=$1 begun=$SECONDS status=0
  shift
  printf '\n==> %s\n' "$title"
  "$@" </dev/null || status=$?
  if ((status == 0)); then
    DONE_STEPS=$((DONE_STEPS + 1))
    printf '==> ok: %s (%s)\n' "$title" "$(duration $((SECONDS - begun)))"
  else
    FAILED_STEPS+=("$title")
    printf '==> FAILED with status %d: %s (%s)\n' "$status" "$title" "$(duration $((SECONDS - begun)))"
  fi
  return "$status"
}

# watched SECONDS LOG command…: runs the command, which writes to LOG, and ends it when LOG has not grown for so long.
# That is for hangs alone: a step that is slow, as beside other work, is slow and not red.
watched() {
  local limit=$1 log=$2 next=0 stuck= status=0 pid
  shift 2
  : >"$log"
  # 0 is no limit: `timeout` is there because it hands a signal on to all that the command has started.
  timeout --kill-after=20 0 "$@" </dev/null >>"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= next)); then
      next=$((SECONDS + 2))
      if (($(date +%s) - $(stat --format=%Y "$log") > limit)); then
        stuck=yes
        kill -TERM "$pid"
        break
      fi
    fi
    sleep 0.3
  done
  wait "$pid" || status=$?
  [ -n "$stuck" ] || return "$status"
  say "(ended, for it has said nothing for $(duration "$limit"))" >>"$log"
  return 124
}

# The same, and shows the log as it grows. A pipe is not used: a process that the command leaves behind would keep the
# pipe's reader waiting.
followed() {
  local log=$2 pid
  : >"$log"
  watched "$@" &
  pid=$!
  tail --lines=+1 --follow --sleep-interval=0.2 --pid="$pid" "$log" 2>/dev/null
  wait "$pid"
}

# Names and ends the processes that carry this run's mark and are still there after the run.
end_leftovers() {
  local entry pid
  for entry in /proc/[0-9]*; do
    pid=${entry#/proc/}
    ((pid != $$ && pid != BASHPID)) || continue
    grep -qsz "^TEST_RUN_MARK=$TEST_RUN_MARK\$" "$entry/environ" || continue
    say "left behind, ended now: process $pid: $(tr '\0' ' ' <"$entry/cmdline" 2>/dev/null | cut -c1-200)"
    kill -KILL "$pid" 2>/dev/null
  done
}

# A step that everything after it needs: the script ends if it fails.
required_step() {
  step "$@" || { say "Cannot go on without that."; exit 1; }
}

installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else
    say "This needs root, and there is no sudo: run as root:  $*"
    return 1
  fi
}

# At most once in a run: it is the slow part, and a second call would change nothing.
update_lists() {
  [ -z "${LISTS_UPDATED:-}" ] || return 0
  LISTS_UPDATED=yes
  as_root apt-get update -q >/dev/null || say "apt-get update failed; going on with the lists at hand"
}

# install_packages NAME…: installs the missing ones, and does not touch apt if none is missing.
install_packages() {
  local missing=() name
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here: install by hand what is missing of: $*"
    return 0
  fi
  for name in "$@"; do installed "$name" || missing+=("$name"); done
  if ((${#missing[@]} == 0)); then
    say "all of $# packages are there"
    return 0
  fi
  say "apt-get install ${missing[*]}"
  update_lists
  # The output goes to a file, because a service that a package starts keeps its streams open.
  local log status=0
  log=$(mktemp)
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" \
    </dev/null >"$log" 2>&1 || { status=$?; tail -n 15 "$log"; }
  rm -f "$log"
  return "$status"
}

# Prints the names that this release of Debian has.
install_what_exists() {
  local wanted=()
  command -v apt-get >/dev/null || return 0
  compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || update_lists
  # `apt-cache show` is not used, because it also knows names that another package merely provides.
  mapfile -t wanted < <(LC_ALL=C apt-cache policy "$@" 2>/dev/null |
    awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) } /^  Candidate: [^(]/ { print name }')
  ((${#wanted[@]} == 0)) || install_packages "${wanted[@]}"
}

find_cargo() {
  command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
  if ! command -v cargo >/dev/null; then
    say "cargo is not on PATH: install Rust 1.88 or later (https://rustup.rs), then run this again"
    return 1
  fi
  cargo --version
}

# Prints the closing line; the script's status is its status.
summary() {
  local took
  took=$(duration $((SECONDS - STARTED)))
  if ((${#FAILED_STEPS[@]} == 0)); then
    printf '\n%s: all %d steps passed in %s\n' "$1" "$DONE_STEPS" "$took"
    return 0
  fi
  printf '\n%s: %d of %d steps FAILED in %s:\n' "$1" "${#FAILED_STEPS[@]}" "$((DONE_STEPS + ${#FAILED_STEPS[@]}))" "$took"
  printf '  - %s\n' "${FAILED_STEPS[@]}"
  return 1
}
