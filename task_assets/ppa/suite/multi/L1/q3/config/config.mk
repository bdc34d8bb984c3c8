export PLATFORM = asap7
export DESIGN_NAME = gcd
export DESIGN_NICKNAME = gcd
export VERILOG_FILES = ./designs/src/gcd/gcd.v
export SDC_FILE = ./designs/asap7/gcd/constraint.sdc

export ABC_AREA = 1
export ASAP7_USE_VT = LVT
export CORE_UTILIZATION = 25
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 100
