"""usage: requantize.py IN.gguf OUT.gguf: the same weights as Q4_0, by llama.cpp's own quantiser."""

import ctypes
import sys

import llama_cpp as ll

params = ll.llama_model_quantize_default_params()
params.ftype = ll.LLAMA_FTYPE_MOSTLY_Q4_0
params.allow_requantize = True
sys.exit(ll.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
