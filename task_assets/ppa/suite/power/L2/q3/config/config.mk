export PLATFORM = asap7
export DESIGN_NAME = sub_64bit
export DESIGN_NICKNAME = sub_64bit
export VERILOG_FILES = ./designs/src/sub_64bit/sub_64bit.v
export SDC_FILE = ./designs/asap7/sub_64bit/constraint.sdc

export ABC_AREA = 1
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 50
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 40
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
