# Functions for the scripts that run on a board. Each command carries those that it uses, without
# these comments. POSIX sh: mksh, dash, toybox and busybox all run them.

# Sleeps for a part of a second, or for a whole one where the tool takes no less.
nap() { sleep "$1" 2>/dev/null || sleep 1; }

# Lifts the limit that a command has while it is waited for: for what goes on after it, or has
# several threads.
lift_time() { ulimit -S -t "$(ulimit -H -t)" 2>/dev/null; }

# Begins a part of an answer.
tell_part() { echo "#armload $1"; }

# Reads the first line of a file into $seen, without starting a program; of a line that no kernel
# writes, nothing: some shells take a time that grows with its square to take it apart.
look() { seen=; [ -r "$1" ] && { read -r seen <"$1"; } 2>/dev/null; [ "${#seen}" -le 4096 ] || seen=; }

# Reads this boot, and whole seconds since it began: no battery is needed to keep them.
seconds_up() {
  read -r boot </proc/sys/kernel/random/boot_id
  read -r up rest </proc/uptime
  up=${up%%.*}
}

# Tools that cannot sync single files sync everything.
to_storage() { sync "$@" 2>/dev/null || sync; }

# Some tools' wc reads the whole file.
size_of() { stat -c %s "$1" 2>/dev/null || wc -c <"$1"; }

# What changes whenever a file does.
mark_of() { stat -c '%s %y %z %i' "$1" 2>/dev/null || ls -lin --full-time "$1" 2>/dev/null || ls -lin "$1"; }

# Where armload's own files that belong to file $1 begin.
own_files() { own=${1%/*}/.armload/${1##*/}; }
# Notes when folder $1 was used last.
note_use() { mkdir -p "$1/.armload" && echo "$2" >"$1/.armload/used"; }

# Says of each file what lies there, the record of its last check, and its mark now.
tell_stored() {
  tell_part files
  for f do
    own_files "$f"
    if [ -f "$f" ]; then
      echo present
      record=
      [ -r "$own.sha256" ] && read -r record <"$own.sha256"
      echo "$record"
      mark_of "$f"
    elif [ -f "$own.part" ]; then
      echo part
      size_of "$own.part"
    else
      echo absent
    fi
  done
}

# Finds the quickest tool for SHA-256: a program of ours in $helper, or the board's own.
find_sum_tool() {
  tool=
  for each in ${helper:+our_sum} 'openssl dgst -sha256 -r' sha256sum 'toybox sha256sum' 'busybox sha256sum'; do
    $each </dev/null >/dev/null 2>&1 && { tool=$each; break; }
  done
}
our_sum() { "$helper" "$@"; }
# Prints the SHA-256 of standard input, or "none" where no tool was found.
sum_of() {
  [ "$tool" ] || { echo none; return; }
  line=$($tool "$@") && [ "${#line}" -le 4096 ] && echo "${line%%[ *]*}"
}
# The sum of a file's first bytes.
sum_of_first() {
  helper=
  find_sum_tool
  head -c "$1" <"$2" | sum_of
}

# Tells what is in the way of writing in folder $1: the nearest folder that is there, and whether a
# file is made in it and grows by $2 bytes. In a shell of its own, for its language.
obstacle() (
  LC_ALL=C
  export LC_ALL
  at=$1
  until [ -d "$at" ] || [ -z "$at" ]; do at=${at%/*}; done
  cd "${at:-/}" 2>/dev/null || exit 0
  pwd -P
  said=$(mkdir -p "$1" 2>&1) && cd "$1" || { echo "refused $said"; exit 0; }
  trial=.armload.$$
  said=$({ true >"$trial"; } 2>&1) || { echo "refused $said"; exit 0; }
  # 127: there is no such tool, which says nothing of the storage.
  { head -c "$2" </dev/zero >"$trial"; } 2>/dev/null
  case $? in 0 | 127) echo grows ;; *) echo full ;; esac
  rm -f "$trial"
)
# Tells what is mounted, and what takes the most space in work folder $1.
tell_used() {
  tell_part mounts
  cat /proc/mounts
  tell_part used
  cd "$1" 2>/dev/null && du -sk models/* bin/* runs 2>/dev/null
}
# Tells what was in the way when folder $1 of work folder $2 could not be written.
tell_refusal() {
  tell_part obstacle
  obstacle "$1" "$3"
  tell_used "$2"
}

# Prints those of the names that are there: files by their path, programs in PATH without one.
tell_there() {
  for name do
    case $name in
      */*) [ -e "$name" ] && echo "$name" ;;
      *) command -v "$name" >/dev/null 2>&1 && echo "$name" ;;
    esac
  done
}
# Prints those of the shared libraries that lie where loaders look for them.
tell_libraries() {
  for name do
    for folder in /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /lib/*-linux-gnu* /usr/lib/*-linux-gnu* /system/lib64 /vendor/lib64; do
      [ -e "$folder/$name" ] && { echo "$name"; break; }
    done
  done
}

# A killed process whose parent is slow to notice still has its number.
alive() { { read -r stat_pid stat_name stat_state stat_rest <"/proc/$1/stat"; } 2>/dev/null && [ "$stat_state" != Z ]; }

# The peaks of a process in KiB: of its address space, and of its resident memory.
read_peaks() {
  peak=
  while read -r key value rest; do
    case $key in
      VmPeak:) peak=$value ;;
      VmHWM:) break ;;
    esac
  done 2>/dev/null <"/proc/$1/status"
  [ -n "$peak" ] && hwm=$value
}

# The time since the boot, a process's CPU time in ticks, and number and value of thermal zones.
note_sample() {
  { read -r since rest </proc/uptime; read -r stat_line <"/proc/$1/stat"; } 2>/dev/null || return
  set -- ${stat_line##*) }
  sample="$since $((${12} + ${13}))"
  for zone in /sys/class/thermal/thermal_zone[0-9]*; do
    look "$zone/temp"
    [ -n "$seen" ] && sample="$sample ${zone##*zone} $seen"
  done
  echo "$sample"
}

# When a process began, in ticks since the boot: a later one with its number has another time. One
# that has ended, and whose parent does not know it yet, is none any more.
birth_of() {
  stat_line=
  { read -r stat_line <"/proc/$1/stat"; } 2>/dev/null || return
  # A name may hold spaces and brackets.
  set -- ${stat_line##*) }
  case $1 in [ZXx]) return 1 ;; esac
  [ $# -ge 20 ] && shift 19 && echo "$1"
}
# Whether a run's program is still the process that its folder names, which is then in $program_id.
is_there() {
  program_id= birth=
  { read -r program_id <"$1/pid"; read -r birth <"$1/birth"; } 2>/dev/null
  case $program_id in '' | *[!0-9]*) return 1 ;; esac
  [ -n "$birth" ] && [ "$(birth_of "$program_id")" = "$birth" ]
}
# Sends signal $1 to process $2, and to those that it has started.
end_by() { kill "-$1" "-$2" 2>/dev/null || kill "-$1" "$2" 2>/dev/null; }
# Ends a run's program that has lost the script which watched it: it will never be a result.
end_orphan() {
  give_governors_back "$1"
  is_there "$1" && end_by KILL "$program_id"
}

# Notes what CPU time each process has had, which of them work in this folder or in $1, and what
# those run that were started by way of a dynamic loader, whose name they have.
note_processes() {
  { read -r since idle </proc/uptime; echo "#at $since"; cat /proc/[0-9]*/stat; } 2>/dev/null
  own=$$
  for each in /proc/[0-9]*; do
    if [ "$each/cwd" -ef . ] || [ "$each/cwd" -ef "$1" ]; then
      own="$own ${each#/proc/}"
    fi
    name=
    { read -r name <"$each/comm"; } 2>/dev/null
    case $name in
      ld-*) echo "#loader ${each#/proc/}"; cat "$each/cmdline" 2>/dev/null; echo ;;
    esac
  done
  echo "#own $own"
}

# Notes that whoever started the run in folder $1 has it.
note_collected() { cd "$1" 2>/dev/null && true >collected; }

# Sends both files of a trace. The newer one is opened first: when it becomes the older one in
# between, some steps come twice, and none is missing.
send_trace() {
  cd "$1" || return
  exec 4</dev/null 3</dev/null
  [ -r trace.jsonl ] && exec 4<trace.jsonl
  [ -r trace.jsonl.1 ] && exec 3<trace.jsonl.1
  cat <&3
  cat <&4
}

# Gives claim $1 an end $2 seconds from now, and writes $3 as its run if that is not empty. It never
# lets go of the old name before the new one stands.
renew_claim() {
  seconds_up
  for old in "$1.$boot".*; do
    [ -e "$old" ] || return 1
    new=$1.$boot.$((up + $2))
    [ "$old" = "$new" ] && new=$1.$boot.$((up + $2 + 1))
    { read -r holder; read -r since; read -r run; } 2>/dev/null <"$old"
    give=rm
    # Storage that is full takes no new lines: the old ones get the new name.
    # Others read claims at any time, so none is there before it is whole.
    { echo "$holder" && echo "$since" && echo "${3:-$run}"; } 2>/dev/null >"$1.part" &&
      mv -f "$1.part" "$new" || give=mv
    # Whoever took the board over has removed the old name.
    case $give in
      rm) rm "$old" 2>/dev/null ;;
      mv) rm -f "$1.part"; mv -f "$old" "$new" 2>/dev/null ;;
    esac || { rm -f "$new"; return 1; }
    return 0
  done
}
# Renews claim $2 in folder $1, and says whether it stood.
keep_lease() { cd "$1" 2>/dev/null && renew_claim "$2" "$3" '' && echo held || echo lost; }
# Ends the claims in folder $1 whose tokens follow it.
free_leases() {
  cd "$1" 2>/dev/null || return 0
  shift
  for token do rm -f "$token".*; done
}
# Lists the claims in folder $1: the name of each, who put it up, since when, and for which run.
tell_leases() {
  seconds_up
  echo "$boot $up"
  cd "$1" 2>/dev/null || return 0
  for attempt in 1 2 3; do
    told= renamed=
    for claim in *.*.*; do
      [ "$claim" = '*.*.*' ] && break
      lines=$(head -c 4096 "$claim" 2>/dev/null) || [ -e "$claim" ] || renamed=yes
      told="$told#claim $claim
$lines
"
    done
    # One that was renewed between the listing and the reading stands under its new name.
    [ -z "$renamed" ] && break
  done
  echo "$told"
}

# Drops the page cache, or at least the model's part of it, by the command that follows, and notes
# which. Pages that are not written to storage yet cannot be dropped.
drop_caches() {
  sync
  cache='as found'
  if { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null; then
    cache=dropped
  elif [ $# -gt 0 ] && "$@" >/dev/null 2>&1; then
    cache=evicted
  fi
  echo "$cache" >cache
}

# Calls a function for each of the CPU's frequency policies, its folder in $policy. Kernels before
# 4.3 have a folder for each core instead, several of which may be one policy.
each_policy() {
  visit=$1
  set -- /sys/devices/system/cpu/cpufreq/policy[0-9]*
  [ -d "$1" ] || set -- /sys/devices/system/cpu/cpu[0-9]*/cpufreq
  for policy in "$@"; do
    [ -d "$policy" ] || continue
    core=${policy%/cpufreq}
    case $policy in
      */cpufreq) look "$policy/affected_cpus"; [ -n "$seen" ] && [ "${seen%% *}" != "${core##*/cpu}" ] && continue ;;
    esac
    "$visit"
  done
}
tell_policy() {
  look "$policy/affected_cpus"
  cores=$seen
  look "$policy/scaling_governor"
  governor=$seen
  look "$policy/scaling_cur_freq"
  khz=$seen
  look "$policy/cpuinfo_max_freq"
  max_khz=$seen
  look "$policy/scaling_max_freq"
  echo "$cores;$governor;$khz;$max_khz;$seen"
}
# Calls a function for each of the devices in folders $2..., or for each policy where there are none.
each_governed() {
  visit=$1
  shift
  [ $# -gt 0 ] || { each_policy "$visit"; return; }
  for policy do "$visit"; done
}
# The file in folder $policy that shows the governor. A device's has no prefix.
find_governor() {
  prefix=scaling_
  [ -e "$policy/governor" ] && prefix=
  governor_file=$policy/${prefix}governor
}
# Tells of each policy, or of each device in folders $@, whether its governor can be written, which
# it has, and which there are.
tell_governors() { each_governed tell_governor "$@"; }
tell_governor() {
  find_governor
  look "$governor_file"
  now=$seen may=no
  # Writing what stands there changes nothing.
  [ -n "$now" ] && { echo "$now" >"$governor_file"; } 2>/dev/null && may=yes
  look "$policy/${prefix}available_governors"
  echo "$may;$now;$seen"
}
# Sets governor $1 of each policy, or of each device in folders $2...; what to go back to is noted
# before anything is changed.
set_governors() {
  wanted=$1
  shift
  each_governed set_governor "$@"
}
set_governor() {
  find_governor
  look "$governor_file"
  [ -n "$seen" ] || return
  former=$seen
  echo "$former - $policy" >>governors
  { echo "$wanted" >"$governor_file"; } 2>/dev/null
  look "$governor_file"
  echo "$former $seen $policy" >>governors
}
# Gives each policy and device the governor back that it had before the run in folder $1; once.
give_governors_back() {
  [ -e "$1/governors" ] && [ ! -e "$1/restored" ] || return
  while read -r former now policy; do
    find_governor
    { echo "$former" >"$governor_file"; } 2>/dev/null
  done <"$1/governors"
  true >"$1/restored"
}

# Calls function $2 for each control group, v1 or v2, in which this shell is for controller $1: its
# folder is in $group, the innermost comes first. A name in /proc/self/cgroup begins at the root of
# the shell's namespace, a mount at any group; where the two do not meet, what is mounted is all
# there is. With v1, a group's limit holds for those inside it only where it says so.
each_group() {
  controller=$1 visit=$2
  while IFS=: read -r number controllers name; do
    case ",$controllers," in
      ,,) type=' - cgroup2 ' ;;
      *,"$controller",*) type=' - cgroup ' ;;
      *) continue ;;
    esac
    top=
    while read -r mount parent device root point options; do
      case " $options" in *"$type"*) ;; *) continue ;; esac
      case "$controllers,${options##* }," in ,* | *,"$controller",*) ;; *) continue ;; esac
      root=${root%/}
      case $name/ in
        "$root"/*) top=$point inner=${name#"$root"} ;;
        *) [ -n "$top" ] || { top=$point; inner=; } ;;
      esac
    done </proc/self/mountinfo
    [ -n "$top" ] || continue
    inner=${inner%/}
    while group=$top$inner; do
      "$visit"
      [ -n "$inner" ] || break
      inner=${inner%/*}
      look "$top$inner/memory.use_hierarchy"
      [ "$seen" = 0 ] && break
    done
  done </proc/self/cgroup
}
tell_group() {
  echo group
  for file in memory.max memory.high memory.limit_in_bytes; do
    look "$group/$file"
    [ -n "$seen" ] && echo "limit $seen"
  done
  for file in memory.current memory.usage_in_bytes; do
    look "$group/$file"
    [ -n "$seen" ] && echo "used $seen"
  done
  while read -r key value; do
    case $key in
      hierarchical_memory_limit) echo "limit $value" ;;
      *active_file | slab_reclaimable) echo "$key $value" ;;
    esac
  done 2>/dev/null <"$group/memory.stat"
}

# Tells which cores this shell may use, which its control groups let it ask for, and their quotas.
tell_cpus() {
  while read -r key value; do
    case $key in Cpus_allowed_list:) echo "affinity $value"; break ;; esac
  done 2>/dev/null </proc/self/status
  while IFS=: read -r number controllers name; do
    case ",$controllers," in ,, | *,cpuset,*) echo groups; break ;; esac
  done 2>/dev/null </proc/self/cgroup
  cpuset=
  each_group cpuset tell_cpuset 2>/dev/null
  each_group cpu tell_quota 2>/dev/null
}
# The innermost that shows one counts. Android's have no prefix.
tell_cpuset() {
  [ -z "$cpuset" ] || return 0
  for file in cpuset.cpus.effective cpuset.effective_cpus cpuset.cpus effective_cpus cpus; do
    look "$group/$file"
    [ -n "$seen" ] && { cpuset=$seen; echo "cpuset $cpuset"; return 0; }
  done
}
tell_quota() {
  look "$group/cpu.max"
  [ -n "$seen" ] && echo "quota $seen"
  look "$group/cpu.cfs_quota_us"
  [ -n "$seen" ] || return 0
  quota=$seen
  look "$group/cpu.cfs_period_us"
  echo "quota $quota $seen"
}

# Prints of each clock of memory, GPU, NPU and interconnect the file that shows it, its name, its
# governor, its rate, the lowest and the highest it may have now, and all that it has.
tell_clocks() {
  for folder in /sys/class/devfreq/*; do
    [ -d "$folder" ] || continue
    look "$folder/name"
    line="$folder/cur_freq;${seen:-${folder##*/}}"
    for file in governor cur_freq min_freq max_freq available_frequencies; do
      look "$folder/$file"
      line="$line;$seen"
    done
    echo "$line"
  done
  # The memory's, where root may read it: in Jetson's firmware, or in the kernel's tree of clocks.
  for file in /sys/kernel/debug/bpmp/debug/clk/emc/rate /sys/kernel/debug/clk/emc/clk_rate /sys/kernel/debug/clk/dram/clk_rate /sys/kernel/debug/clk/*clk_ddr/clk_rate /sys/kernel/debug/clk/*clk_ddrc/clk_rate; do
    look "$file"
    [ -n "$seen" ] || continue
    folder=${file%/*}
    line="$file;${folder##*/};;$seen"
    for limit in min max; do
      look "${file%rate}${limit}_rate"
      line="$line;$seen"
    done
    echo "$line;"
    break
  done
  command -v vcgencmd >/dev/null 2>&1 || return 0
  for name in arm core v3d; do
    seen=$(vcgencmd measure_clock "$name" 2>/dev/null | head -c 200)
    case $seen in *=*) echo "vcgencmd;$name;;${seen#*=};;;" ;; esac
  done
}

# Tells how long each of the clocks $@ has had each of its frequencies, where the kernel counts it.
tell_transitions() {
  read -r since rest </proc/uptime
  echo "#at $since"
  for clock do
    [ -r "${clock%/*}/trans_stat" ] || continue
    echo "#clock $clock"
    head -c 16384 "${clock%/*}/trans_stat"
  done 2>/dev/null
}

# Prints of each thermal zone its number, what it shows ("-" for no answer), and its name.
tell_temperatures() {
  for zone in /sys/class/thermal/thermal_zone[0-9]*; do
    [ -d "$zone" ] || continue
    look "$zone/temp"
    shown=${seen:--}
    look "$zone/type"
    echo "${zone##*zone} $shown ${seen:-${zone##*/}}"
  done
}

# Finds what tells that the hardware is slowed down, or that its supply is too low: prints a kind
# and a name of each, and leaves their files in $throttles.
find_throttles() {
  throttles= noted= changes=0
  for file in /sys/devices/platform/*firmware/get_throttled /sys/devices/platform/soc*/*firmware/get_throttled; do
    [ -n "$throttles" ] || find_throttle firmware "$file" get_throttled
  done
  if [ -z "$throttles" ] && command -v vcgencmd >/dev/null 2>&1; then
    throttles=' vcgencmd'
    echo 'source firmware vcgencmd get_throttled'
  fi
  for folder in /sys/class/hwmon/hwmon[0-9]*; do
    look "$folder/name"
    case $seen in
      rpi_volt) find_throttle alarm "$folder/in0_lcrit_alarm" rpi_volt ;;
      soctherm_oc) for file in "$folder"/oc[0-9]*_event_cnt; do find_throttle overcurrent "$file" "${file##*/}"; done ;;
    esac
  done
  # Those that slow the CPU or the memory: fans, displays and GPUs cost no speed.
  for folder in /sys/class/thermal/cooling_device[0-9]*; do
    look "$folder/type"
    case $seen in
      *cpufreq* | *cpu-freq* | *cpu_freq* | *cpuidle* | *idle-cpu* | *pause* | *cpu-isolate* | *cpu*throttle* | thermal-budget* | *dmc* | Processor)
        find_throttle cooling "$folder/cur_state" "$seen" ;;
    esac
  done
  for file in /sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count; do
    core=${file%/thermal_throttle/*}
    find_throttle events "$file" "${core##*/}"
  done
}
find_throttle() {
  [ -r "$2" ] || return
  throttles="$throttles $2"
  echo "source $1 $3"
}
# Prints what they show, where that has changed; at most so often that the file stays small.
note_throttles() {
  [ -n "$throttles" ] && [ "$changes" -lt 20000 ] || return
  found=
  for file in $throttles; do
    case $file in
      vcgencmd) seen=$(vcgencmd get_throttled 2>/dev/null | head -c 200) ;;
      *) look "$file" ;;
    esac
    seen=${seen#*=}
    seen=${seen%% *}
    found="$found ${seen:--}"
  done
  [ "$found" = "$noted" ] && return
  noted=$found
  changes=$((changes + 1))
  read -r up_now rest </proc/uptime
  echo "at $up_now$found"
}
tell_storage() {
  tell_part df
  df -kP . 2>/dev/null || df -k .
  tell_part place
  pwd -P
}
# Tells how a board is now, which is in boot $1.
tell_state() {
  tell_part uname
  uname -rm
  tell_part proc
  echo "$1"
  cat /proc/uptime /proc/loadavg /proc/meminfo /proc/cpuinfo /proc/mounts
  while read -r line; do echo "$line"; done 2>/dev/null </proc/swaps
  tell_part memory
  each_group memory tell_group 2>/dev/null
  tell_part cpus
  tell_cpus
  tell_part policies
  each_policy tell_policy
  tell_part clocks
  tell_clocks
  tell_part temperatures
  tell_temperatures
  tell_part throttling
  find_throttles
  note_throttles
}
