# The bash kernel: runs cells in one shell that keeps its state. Cells come on the descriptor `$1`, each ended by a zero byte and preceded by the mark that
# says on both outputs where it ended. Interrupts are SIGINT.
BASH_ARGV0=bash
__cells=$1
set --
# The cell's own redirections can't move these.
exec {__out}>&1 {__err}>&2
__stopped=
trap '__stopped=1' INT
__run() {
  # Inside a function `return` leaves whatever loop the cell is in.
  trap '__stopped=1; return 130' INT
  eval "$1"
}
while IFS= read -r -d '' -u "$__cells" __mark && IFS= read -r -d '' -u "$__cells" __cell; do
  __stopped=
  __run "$__cell"
  __status=$?
  trap '__stopped=1' INT
  printf '%s%s\n' "$__mark" "${__stopped:+ stopped}" >&"$__out"
  printf '%s\n' "$__mark" >&"$__err"
done
