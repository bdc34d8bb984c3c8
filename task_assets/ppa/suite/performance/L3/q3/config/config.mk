export PLATFORM = asap7
export DESIGN_NAME = fixed_point_adder
export DESIGN_NICKNAME = fixed_point_adder
export VERILOG_FILES = ./designs/src/fixed_point_adder/fixed_point_adder.v
export SDC_FILE = ./designs/asap7/fixed_point_adder/constraint.sdc

export ABC_AREA = 0
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 50
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
