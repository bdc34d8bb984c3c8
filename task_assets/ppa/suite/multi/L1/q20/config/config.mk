export PLATFORM = asap7
export DESIGN_NAME = multi_16bit
export DESIGN_NICKNAME = multi_16bit
export VERILOG_FILES = ./designs/src/multi_16bit/multi_16bit.v
export SDC_FILE = ./designs/asap7/multi_16bit/constraint.sdc

export ABC_AREA = 1
export ASAP7_USE_VT = LVT
export CORE_UTILIZATION = 50
export PLACE_DENSITY = 0.85
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 100
