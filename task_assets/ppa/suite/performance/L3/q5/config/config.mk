export PLATFORM = asap7
export DESIGN_NAME = array_mult_16bit
export DESIGN_NICKNAME = array_mult_16bit
export VERILOG_FILES = ./designs/src/array_mult_16bit/array_mult_16bit.v
export SDC_FILE = ./designs/asap7/array_mult_16bit/constraint.sdc

export ABC_AREA = 0
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 50
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
