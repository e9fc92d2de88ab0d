"""Packs the Python package of a build, the libraries that it needs and the data into a wheel.

usage: wheel.py SOURCES BUILD OUTPUT

Equal inputs give equal bytes: no time stamps, files in order.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

# What every glibc system has, and libraries of the compiler that must be one in a process.
SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so")
DATA = ["models/data", "topologies/data", "workloads/data", "schemas", "scenarios", "validation"]
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(module):
    """The shared libraries that a module needs, with those that they need: file name -> path."""
    found = {}
    for line in output_of("ldd", str(module)).splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and not SYSTEM.match(name):
            path = rest.split(" (")[0]
            if path == "not found":
                sys.exit(f"orrery: the library {name} is not found")
            found[name] = pathlib.Path(path).resolve()
    return found


def needed_by(file):
    return output_of("patchelf", "--print-needed", str(file)).split()


def bundle(module, folder):
    """Copies libraries beside the package under names of their own, so that no other copy in the process is taken for them."""
    folder.mkdir()
    names = {}
    for name, path in libraries_of(module).items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        stem, so, version = name.partition(".so")
        names[name] = f"{stem}-{digest}{so}{version}"
        shutil.copy(path, folder / names[name])
        os.chmod(folder / names[name], 0o755)
    for file, run_path in [(module, f"$ORIGIN/../{folder.name}")] + [(folder / own, "$ORIGIN") for own in names.values()]:
        # One change at a time: patchelf 0.14 leaves the versions of symbols inconsistent when it makes several.
        changes = [["--replace-needed", name, names[name]] for name in needed_by(file) if name in names]
        changes += [["--set-soname", file.name]] if file != module else []
        for change in [*changes, ["--set-rpath", run_path]]:
            subprocess.run(["patchelf", *change, str(file)], check=True)
    return sorted(names.values())


def glibc_of(files):
    """The newest version of glibc whose symbols the files use."""
    newest = (2, 17)
    for file in files:
        for found in GLIBC.findall(output_of("objdump", "-T", str(file))):
            newest = max(newest, (int(found[0]), int(found[1])))
    return newest


def record_row(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main():
    sources, build, output = (pathlib.Path(word) for word in sys.argv[1:])
    built = build / "python" / "orrery"
    modules = sorted(built.glob("_orrery*.so"))
    if len(modules) != 1:
        sys.exit(f"orrery: {built} has no module; build the target orrery_python first")
    text = (sources / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(orrery VERSION (\S+)", text).group(1)
    with tempfile.TemporaryDirectory() as temporary:
        stage = pathlib.Path(temporary)
        package = stage / "orrery"
        shutil.copytree(built, package, ignore=shutil.ignore_patterns("__pycache__"))
        module = package / modules[0].name
        subprocess.run(["strip", "--strip-unneeded", str(module)], check=True)
        libraries = bundle(module, stage / "orrery.libs")
        listed = output_of("git", "-C", str(sources), "ls-files", "-z", *DATA).split("\0")
        for name in filter(None, listed):
            if pathlib.Path(name).suffix not in (".cpp", ".hpp", ".txt", ".py"):
                target = package / "share" / "orrery" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(sources / name, target)
        glibc = glibc_of([module] + [stage / "orrery.libs" / name for name in libraries])
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        machine = sysconfig.get_platform().split("-")[-1]
        tag = f"{python}-{python}-manylinux_{glibc[0]}_{glibc[1]}_{machine}"
        info = stage / f"orrery-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: orrery\nVersion: {version}\n"
            "Summary: A discrete-event simulator of AI clusters\nRequires-Python: >=3.9\n"
            "Provides-Extra: frames\nRequires-Dist: pandas; extra == 'frames'\n",
            encoding="utf-8",
        )
        (info / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nGenerator: orrery\nRoot-Is-Purelib: false\nTag: {tag}\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text("[console_scripts]\norrery = orrery.__main__:main\n", encoding="utf-8")
        output.mkdir(parents=True, exist_ok=True)
        wheel = output / f"orrery-{version}-{tag}.whl"
        partial = wheel.with_suffix(".partial")
        record = ""
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path for path in stage.rglob("*") if path.is_file()):
                name = file.relative_to(stage).as_posix()
                data = file.read_bytes()
                record += record_row(name, data)
                entry = zipfile.ZipInfo(name)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o755 if ".so" in file.name else 0o644) << 16
                archive.writestr(entry, data)
            own = f"{info.name}/RECORD"
            archive.writestr(zipfile.ZipInfo(own), record + f"{own},,\n")
        partial.rename(wheel)
        print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB, {len(libraries)} libraries")


if __name__ == "__main__":
    main()
