#!/usr/bin/env bash
# Static libraries of those dependencies that Debian 12 has as shared ones only, made of Debian's sources of the installed versions and
# kept in the cache. Prints their folder, for cmake -DQUIRE_STATIC_LIBRARIES=FOLDER.
. "$(dirname "$0")/common.sh"

install_packages "${build_packages[@]}" dpkg-dev
version_of() { dpkg-query -W -f='${source:Version}' "$1"; }
fmt=$(version_of libfmt-dev) spdlog=$(version_of libspdlog-dev) simdjson=$(version_of libsimdjson-dev)
folder=$cache/static-$(echo "$fmt $spdlog $simdjson $(g++ -dumpfullversion)" | sha256sum | cut -c1-12)

if [ ! -f "$folder/libsimdjson.a" ]; then
  say "making static libraries of fmt $fmt, spdlog $spdlog and simdjson $simdjson"
  mkdir -p "$cache"
  work=$(mktemp -d -p "$cache")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/archives/partial"
  echo "deb-src http://deb.debian.org/debian bookworm main" > "$work/sources.list"
  apt=(apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work" -o APT::Sandbox::User=)
  "${apt[@]}" update >&2
  (cd "$work" && "${apt[@]}" source -qq "fmtlib=$fmt" "spdlog=$spdlog" "simdjson=$simdjson" >&2)

  # archive NAME SOURCE... -- FLAG...
  archive() {
    local name=$1 sources=() objects=() source
    shift
    while [ "$1" != -- ]; do sources+=("$1") && shift; done
    shift
    for source in "${sources[@]}"; do
      objects+=("$work/$name-$(basename "$source").o")
      g++ -std=c++17 -O2 -DNDEBUG -fPIC -ffunction-sections -fdata-sections "$@" -c "$source" -o "${objects[-1]}" >&2
    done
    ar rcs "$work/$name.a" "${objects[@]}"
  }
  archive libfmt "$work"/fmtlib-*/src/{format,os}.cc -- "-I$(echo "$work"/fmtlib-*/include)"
  archive libspdlog "$work"/spdlog-*/src/{spdlog,stdout_sinks,color_sinks,file_sinks,async,cfg}.cpp -- -DSPDLOG_COMPILED_LIB \
    -DSPDLOG_FMT_EXTERNAL "-I$(echo "$work"/spdlog-*/include)"
  archive libsimdjson "$work"/simdjson-*/singleheader/simdjson.cpp -- "-I$(echo "$work"/simdjson-*/singleheader)"
  mkdir -p "$folder"
  mv "$work"/lib{fmt,spdlog,simdjson}.a "$folder/"
fi
echo "$folder"
