# Shared by tools/orrery and tools/test: installs what is missing and builds. Sourced, not run.
# Quiet when there is nothing to do; everything it says goes to standard error.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What the build needs, by Debian package. CONTRIBUTING.md says why each is there.
packages=(g++ cmake ninja-build libboost-dev libboost-program-options-dev libyaml-cpp-dev
          libfmt-dev nlohmann-json3-dev doctest-dev libsimgrid-dev libprotobuf-dev libsqlite3-dev libeigen3-dev coinor-libcbc-dev
          liblzma-dev libzstd-dev zlib1g-dev libjs-chart.js libcpp-httplib-dev)

say() { printf 'orrery: %s\n' "$*" >&2; }

install_missing() {
    # One look at the package data base, and none at all once a build has succeeded with this list.
    local stamp="$root/build/packages.ok"
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${packages[*]}" ] && return 0
    local missing=() package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [ "${#missing[@]}" -gt 0 ]; then
        if ! command -v apt-get >/dev/null 2>&1; then
            say "these packages are missing and there is no apt-get here to install them: ${missing[*]}"
            exit 2
        fi
        local as_root=()
        if [ "$(id -u)" -ne 0 ]; then
            if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true 2>/dev/null; then
                say "no rights to install: run 'apt-get install ${missing[*]}' as root, then try again"
                exit 2
            fi
            as_root=(sudo -n)
        fi
        say "installing ${missing[*]}"
        mkdir -p "$root/build"
        if ! { "${as_root[@]}" apt-get update -qq &&
               DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
                   "${missing[@]}"; } >"$root/build/install.log" 2>&1; then
            tail -n 20 "$root/build/install.log" >&2
            say "installing failed; the log is build/install.log"
            exit 2
        fi
    fi
    mkdir -p "$root/build"
    printf '%s' "${packages[*]}" >"$stamp"
}

# What only some tests need, and the build does not: tried once, for at most five minutes, and never an error.
install_for_tests() {
    local missing=() package as_root=()
    for package in chromium chromium-driver slurm-wlm munge python3 python3-dev python3-venv pybind11-dev patchelf clang-format-14 mkdocs; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    command -v apt-get >/dev/null 2>&1 || return 0
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    say "installing ${missing[*]} for tests"
    mkdir -p "$root/build"
    { timeout 120 "${as_root[@]}" apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive timeout 300 "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
          "${missing[@]}"; } >"$root/build/install-tests.log" 2>&1 ||
        say "not all of ${missing[*]} could be installed; their tests will be skipped"
}

# Reads what ninja says and shows how far it is, once it has taken longer than a small change does: in place on a terminal,
# and elsewhere every half minute.
show_progress() {
    local line start=$SECONDS last=$SECONDS shown=0 every=30
    [ -t 2 ] && every=1
    while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        local done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} passed=$((SECONDS - start))
        if [ "$passed" -lt 3 ] || [ $((SECONDS - last)) -lt "$every" ]; then
            continue
        fi
        last=$SECONDS shown=1
        local left=$((passed * (total - done) / done))
        local text="orrery: $done of $total built, $((left / 60)) min $((left % 60)) s left"
        if [ -t 2 ]; then printf '\r%-60s' "$text" >&2; else printf '%s\n' "$text" >&2; fi
    done
    if [ "$shown" -eq 1 ] && [ -t 2 ]; then printf '\r%-60s\r' '' >&2; fi
}

# build PRESET TARGET...: configures once and builds incrementally on all cores.
build() {
    local preset=$1
    shift
    install_missing
    local folder="$root/build/$preset" log="$root/build/$preset.log"
    mkdir -p "$folder"
    (
        set -o pipefail
        if ! flock -n 9; then
            say "waiting for another build of this folder to end"
            flock 9
        fi
        if [ ! -f "$folder/build.ninja" ]; then
            say "configuring ($preset)"
            if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1; then
                tail -n 30 "$log" >&2
                say "configuring failed; the log is build/$preset.log"
                exit 2
            fi
            say "building ($preset): about $((20 / $(nproc) + 1)) minutes the first time on $(nproc) cores"
        fi
        if ! cmake --build "$folder" --target "$@" 2>&1 | tee "$log" | show_progress; then
            grep -E 'error|FAILED' -A 5 "$log" | head -n 60 >&2
            say "building failed; the log is build/$preset.log"
            exit 2
        fi
    ) 9>"$root/build/$preset.lock" || exit 2
}
