# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the models' tests: Documentation/models/NAME.pml holds, and without each
# of its rules spin finds a violation.
#
#	model NAME
#	sound TITLE KIND PAN-OPTIONS -- SPIN-OPTIONS
#			nothing is wrong, after every state was looked at
#	thorough ...	the same, only if TOW_COUNT is set (by hand): it takes
#			long
#	broken TITLE FINDING KIND PAN-OPTIONS -- SPIN-OPTIONS
#			the search finds FINDING: "assertion violated" and the like
#	verdict		last: does it all, a search on each processor, and prints it.  No
#			statement may be dead in all sound searches of NOCLAIM
#			together: what the model is about does happen
#
# KIND is what pan is compiled for: NOCLAIM (assertions and end states), or
# NFAIR=3 for liveness.  A search has 1 GiB.
. tests/packaging/lib.sh

jobs=()

# Most of the time is the compiler's: the faster one.
compiler=$(command -v clang || echo gcc)

model() {
	name=$1
	model=$PWD/Documentation/models/$name.pml
}

sound() {
	jobs+=("$1")
	printf '%s\n' "${@:2}" > "$scratch/${#jobs[@]}.options"
	echo "errors: 0" > "$scratch/${#jobs[@]}.finding"
}

thorough() {
	[ -z "${TOW_COUNT-}" ] || sound "$@"
}

broken() {
	jobs+=("$1")
	printf '%s\n' "${@:3}" > "$scratch/${#jobs[@]}.options"
	echo "$2" > "$scratch/${#jobs[@]}.finding"
}

# search NUMBER: in a folder of its own
search() {
	local dir=$scratch/$1.search options=() words=() kind=()
	mapfile -t words < "$scratch/$1.options"
	kind=("-D${words[0]}")
	[ "${words[0]}" = NOCLAIM ] && kind+=(-DSAFETY)
	words=("${words[@]:1}")
	while [ "${words[0]}" != -- ]; do
		options+=("${words[0]}")
		words=("${words[@]:1}")
	done
	words=("${words[@]:1}")
	# A small search takes less time than the compiler's -O1.
	case ${options[*]} in
	*-w2[2-9]*) kind+=(-O1) ;;
	esac
	mkdir "$dir"
	(cd "$dir" && spin -a "${words[@]}" "$model" > /dev/null &&
		"$compiler" -w "${kind[@]}" -DCOLLAPSE -DMEMLIM=1024 -o pan pan.c &&
		timeout 300 ./pan -m500000 "${options[@]}") > "$scratch/$1.log" 2>&1
	rm -rf "$dir"
}

found() {
	local log=$scratch/$1.log finding
	finding=$(< "$scratch/$1.finding")
	sed -n '/rror/p; /^pan:/p; /states, stored/p; /elapsed/p' "$log"
	grep -qF "$finding" "$log" || return 1
	[ "$finding" != "errors: 0" ] ||
		! grep -qE 'Search not completed|max search depth|reached -D' "$log"
}

# Lines that no sound search of safety has reached, as pan reports them by line
# and text.  A statement that must fail (assert(false)) is there to be dead.
dead() {
	local number
	for number in "${!jobs[@]}"; do
		number=$((number + 1))
		grep -q "errors: 0" "$scratch/$number.finding" || continue
		grep -q NOCLAIM "$scratch/$number.options" || continue
		grep "$name\.pml:" "$scratch/$number.log" | grep -v '"-end-"\|"assert(0)"' |
			sed 's/state [0-9]*, //' | sort -u > "$scratch/now.dead"
		if [ -e "$scratch/all.dead" ]; then
			comm -12 "$scratch/all.dead" "$scratch/now.dead" > "$scratch/both.dead"
			mv "$scratch/both.dead" "$scratch/all.dead"
		else
			mv "$scratch/now.dead" "$scratch/all.dead"
		fi
	done
	cat "$scratch/all.dead"
}

all_reached() {
	! dead | grep .
}

verdict() {
	local number running=0
	plan $((${#jobs[@]} + 1))
	for number in "${!jobs[@]}"; do
		if [ $running -ge "$(nproc)" ]; then
			wait -n
		else
			running=$((running + 1))
		fi
		search $((number + 1)) &
	done
	wait
	for number in "${!jobs[@]}"; do
		check "${jobs[number]}" found $((number + 1))
	done
	check "nothing is unreachable" all_reached
	finish
}
