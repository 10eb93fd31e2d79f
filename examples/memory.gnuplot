#!/usr/bin/gnuplot
# Draws what Memintro.log_every writes: RSS and live objects, each with an axis of its own.
#
#   grep -oh 'MEMORY\[.*' log/production.log > memory.log
#   gnuplot -e "log='memory.log'; picture='memory.png'" examples/memory.gnuplot
#
# One process at a time: filter by its id, as in grep -oh 'MEMORY\[123\].*'. `memintro plot` draws a curve for each.

if (!exists("log")) log = "memory.log"
if (!exists("picture")) picture = "memory.png"

set terminal png size 1200, 600
set output picture

set xdata time
set timefmt "%Y-%m-%d %H:%M:%S"
set format x "%H:%M:%S"
set xlabel "time"

set ylabel "RSS, MB"
set ytics nomirror
set y2label "live objects, million"
set y2tics
set grid
set key outside top center horizontal

# Blanks separate the columns, and a number may end in a comma or be followed by its unit:
#
#   MEMORY[123]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live_objects: 1.2 Million
#   1            2     3          4        5     6    7      8   9             10  11
#
# Both units are always the same, so the numbers alone are right.
plot log using 3:7 axes x1y1 with lines linewidth 2 linecolor rgb "#0072b2" title "RSS", \
     log using 3:10 axes x1y2 with lines linewidth 2 linecolor rgb "#d55e00" title "live objects"
