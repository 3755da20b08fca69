# Sourced by every script here: sets `root` and `venv`, and makes .venv when it is missing or stale.
#
#   ensure_venv server   what a user installs, with the server
#   ensure_venv dev      the same with everything else, and the tools for tests and checks
#
# PYTHON chooses the interpreter; without it, python3 if it is 3.11 or newer, else the newest found.
# Progress goes to standard error: standard output belongs to the command that the script runs.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

say() { printf '[endstop] %s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

python_ok() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [[ -n "${PYTHON:-}" ]]; then
        command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON: no such command; set it to a Python 3.11 or newer"
        python_ok "$PYTHON" ||
            die "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 | tail -n 1); endstop needs Python 3.11 or newer"
        printf '%s\n' "$PYTHON"
        return
    fi
    local name
    for name in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && python_ok "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    local found="none found"
    if command -v python3 >/dev/null; then found="python3 is $(python3 --version 2>&1 | tail -n 1)"; fi
    die "endstop needs Python 3.11 or newer ($found); install one, or name one in PYTHON"
}

# Debian splits venv and ensurepip off into a package of its own.
require_venv_module() {
    local python="$1"
    if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then return; fi
    local package
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if command -v apt-get >/dev/null && [[ "$(id -u)" -eq 0 ]]; then
        say "installing $package: $python cannot make virtual environments without it"
        apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are here"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >&2 ||
            die "apt-get could not install $package; install it by hand and run this again"
    fi
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        die "$python has no venv module; install it first (on Debian, as root: apt-get install $package)"
}

# Two lines: what the environment was made from, and which extras went in.
venv_origin() {
    printf '%s %s %s\n' "$root" "$(cksum <"$root/pyproject.toml")" \
        "$("$1" -c 'import sys; print(sys.executable, *sys.version_info[:3])')"
}

venv_is_current() {
    local origin="$1" want="$2" stamped_origin="" stamped_kind=""
    [[ -x "$venv/bin/python" && -f "$venv/endstop-stamp" ]] || return 1
    { read -r stamped_origin && read -r stamped_kind; } <"$venv/endstop-stamp" || return 1
    [[ "$stamped_origin" == "$origin" ]] || return 1
    [[ "$stamped_kind" == "$want" || "$stamped_kind" == dev ]] || return 1
    "$venv/bin/python" -c '' >/dev/null 2>&1
}

make_venv() {
    local python="$1" origin="$2" want="$3" target
    if venv_is_current "$origin" "$want"; then return; fi
    require_venv_module "$python"
    say "making .venv with $("$python" --version 2>&1)"
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2 || die "$python -m venv failed; see the lines above"
    target=".[$want]"
    say "installing endstop ($want) into .venv; the first time takes a minute"
    (cd "$root" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --progress-bar off --editable "$target") >&2 ||
        die "pip could not install the dependencies; see the lines above"
    printf '%s\n%s\n' "$origin" "$want" >"$venv/endstop-stamp"
    say "ready"
}

ensure_venv() {
    local want="$1" python origin
    python="$(find_python)" || exit 1
    origin="$(venv_origin "$python")"
    if venv_is_current "$origin" "$want"; then return; fi
    if command -v flock >/dev/null; then
        # Two scripts started at once must not build the same environment into each other.
        (flock 9 && make_venv "$python" "$origin" "$want") 9>"$root/.venv.lock"
    else
        make_venv "$python" "$origin" "$want"
    fi
}
