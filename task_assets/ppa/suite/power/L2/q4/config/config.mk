export PLATFORM = asap7
export DESIGN_NAME = radix2_div
export DESIGN_NICKNAME = radix2_div
export VERILOG_FILES = ./designs/src/radix2_div/radix2_div.v
export SDC_FILE = ./designs/asap7/radix2_div/constraint.sdc

export ABC_AREA = 1
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 25
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
