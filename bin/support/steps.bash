# What bin/setup, bin/demo and bin/test share: packages, and steps that say what they do and how long it took.
# Sourced, never run. Works in a plain Debian with nothing but Rust; safe to call again and again.

set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT" || exit 1

# What a checkout needs to be built, and what its tests and lints need on top.
BUILD_PACKAGES=(build-essential procps ruby ruby-dev rake libclang1-19 libclang-common-19-dev)
TEST_PACKAGES=(bundler ruby-rspec rubocop yard ruby-nokogiri libjemalloc2)
# Wanted by some specs, which say so and are skipped without them.
EXTRA_TEST_PACKAGES=(libtcmalloc-minimal4 libtcmalloc-minimal4t64 libmimalloc2.0 libmimalloc3 ruby-rbs debootstrap)

FAILED_STEPS=()
DONE_STEPS=0
STARTED=$SECONDS

say() { printf '%s\n' "$*"; }

# A human duration from seconds.
duration() {
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %02d s' "$(($1 / 60))" "$(($1 % 60))"; fi
}

# step "What it does" command…: prints both ends, remembers a failure, and answers it.
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

# For steps without which nothing that follows makes sense.
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

# Once a run at most: it is the slow part, and says nothing new the second time.
update_lists() {
  [ -z "${LISTS_UPDATED:-}" ] || return 0
  LISTS_UPDATED=yes
  as_root apt-get update -q >/dev/null || say "apt-get update failed; going on with the lists at hand"
}

# install_packages NAME…: those that are missing; does not touch apt when none is.
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
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Only those of the names that this release of Debian has.
install_what_exists() {
  local name wanted=()
  command -v apt-get >/dev/null || return 0
  compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || update_lists
  for name in "$@"; do
    # Not `apt-cache show`, which also knows names that another package merely provides.
    apt-cache policy "$name" 2>/dev/null | grep -q '^  Candidate: [^(]' && wanted+=("$name")
  done
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
