#!/usr/bin/env bash
# Build the fuzz targets with clang, AddressSanitizer and UBSan, and run one:
#
#   fuzz/run.sh gguf 600        # ten minutes
#   fuzz/run.sh tokenizer 600
#
# What the fuzzer finds is left in build/fuzz/; the corpus grows in build/fuzz/corpus.
set -euo pipefail

target=${1:?which target: gguf or tokenizer}
seconds=${2:-600}
package=$(cd "$(dirname "$0")/.." && pwd)
build=$package/build/fuzz

cmake -S "$package" -B "$build" -DCMAKE_CXX_COMPILER="${CXX:-clang++}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DLLAMAY_FUZZ=ON -DLLAMAY_SANITIZE=address,undefined >/dev/null
cmake --build "$build" --parallel 2
python3 "$package/fuzz/make_seeds.py" "$build/seeds"
mkdir -p "$build/corpus/$target"
exec "$build/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=512 -timeout=5 \
  -artifact_prefix="$build/" -print_final_stats=1 "$build/corpus/$target" "$build/seeds/$target"
