#!/usr/bin/env bash
# One program for other machines: build/release-cuda/dist/quire, for CUDA and without, that needs glibc alone. Fails if it needs more,
# or a newer glibc than Debian 12's.
. "$(dirname "$0")/common.sh"
newest_glibc=2.36

libraries=$("$root/tools/static_libraries.sh")
cuda=$(cuda_home)
configure_options=("-DQUIRE_STATIC_LIBRARIES=$libraries" "-DCMAKE_CUDA_COMPILER=$cuda/bin/nvcc" "-DCUDAToolkit_ROOT=$cuda")
say "building (release-cuda)"
build release-cuda quire
mkdir -p "$root/build/release-cuda/dist"
program=$root/build/release-cuda/dist/quire
strip -o "$program" "$root/build/release-cuda/quire"

needed=$(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }')
echo "$program: $(stat -c %s "$program") bytes; needs" $needed
others=$(grep -vE '^(lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2)$' <<< "$needed" || true)
[ -z "$others" ] || { echo "not of glibc:" $others >&2; exit 1; }
highest=$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
echo "highest symbol version: $highest"
[ "$(printf '%s\n' "GLIBC_$newest_glibc" "$highest" | sort -V | tail -1)" = "GLIBC_$newest_glibc" ] ||
  { echo "$highest is newer than GLIBC_$newest_glibc" >&2; exit 1; }

# It starts where there is nothing but glibc: a root with the program, its loader and those libraries.
if [ "$(id -u)" = 0 ]; then
  empty=$(mktemp -d)
  trap 'rm -rf "$empty"' EXIT
  mkdir -p "$empty/lib64" "$empty/lib/x86_64-linux-gnu"
  cp -L /lib64/ld-linux-x86-64.so.2 "$empty/lib64/"
  for library in $needed; do
    [ "$library" = ld-linux-x86-64.so.2 ] || cp -L "/lib/x86_64-linux-gnu/$library" "$empty/lib/x86_64-linux-gnu/"
  done
  cp "$program" "$empty/quire"
  echo "in an empty root: quire $(chroot "$empty" /quire --version)"
fi
