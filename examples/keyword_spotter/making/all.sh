#!/bin/sh
# Makes model and clips again, in FOLDER: sh keyword_spotter/making/all.sh FOLDER, in the folder `examples`.
set -eu
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # sums are always taken in the same order
"${PYTHON:-python3}" -m venv "$1/env"
"$1/env/bin/pip" install --quiet numpy==2.4.6 onnx==1.23.2
for step in speech augment train; do
    echo "$step"
    "$1/env/bin/python" -m "keyword_spotter.making.$step" "$1"
done
