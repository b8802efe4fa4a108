# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the packaging tests: KTAP output and a scratch folder.
#
#	plan N			first: how many checks there will be
#	check NAME COMMAND…	one check; the command's output is shown when it fails
#	finish			last: fails when a check failed or is missing
#
# Tests run from the top of the tree; $scratch goes away at the end.

set -u
export LC_ALL=C
# Where modinfo and dkms are, for an ordinary user of Debian.
PATH=$PATH:/usr/sbin:/sbin

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Fetch the headers that a test builds against, where setup was not asked for
# all kernels.
need_kernels() {
	local kernel
	for kernel in "$@"; do
		[ -e "build/kernels/$kernel/release" ] || scripts/lab/kernel ensure "$kernel" ||
			{ echo "# kernel $kernel cannot be had"; exit 1; }
	done
}

# Compile through a cache, for tests that build the same sources again and again:
# what they ask is what make(1) and dkms(8) do, not whether gcc works.  Paths are
# part of what it knows a file by, so they work in a folder that has a name: prints it.
cached_folder() {
	local folder=$PWD/build/tests/packaging/$1
	rm -rf "$folder"
	mkdir -p "$folder"
	echo "$folder"
}
use_cache() {
	export CCACHE_DIR=${TOW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/towline}/ccache
	PATH=/usr/lib/ccache:$PATH
}

# The tool where any user of a guest may run it: the repository may lie in a
# home that only its owner enters.  Prints the path.
tool_for_all() {
	local dir=/run/tow-test
	mkdir -p "$dir" && cp -a build/bin build/lib "$dir" && chmod -R a+rX "$dir" &&
		echo "$dir/bin/towline"
}

planned=0
number=0
failed=0

plan() {
	planned=$1
	echo "KTAP version 1"
	echo "1..$planned"
}

check() {
	local name=$1
	shift
	number=$((number + 1))
	if "$@" > "$scratch/check.log" 2>&1; then
		echo "ok $number $name"
	else
		sed 's/^/# /' "$scratch/check.log"
		echo "not ok $number $name"
		failed=$((failed + 1))
	fi
}

# fails STATUS COMMAND…: the command must end with just this status
fails() {
	local want=$1 got=0
	shift
	"$@" || got=$?
	[ "$got" = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}

# says TEXT COMMAND…: the command's output must hold the text
says() {
	local text=$1
	shift
	"$@" > "$scratch/says.log" 2>&1
	grep -qF -e "$text" "$scratch/says.log" || {
		echo "no '$text' in:"
		cat "$scratch/says.log"
		return 1
	}
}

finish() {
	[ "$number" = "$planned" ] || echo "# planned $planned checks, made $number"
	[ "$failed" = 0 ] && [ "$number" = "$planned" ]
	exit
}
