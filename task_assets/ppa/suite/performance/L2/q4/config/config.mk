export PLATFORM = asap7
export DESIGN_NAME = adder_pipe_64bit
export DESIGN_NICKNAME = adder_pipe_64bit
export VERILOG_FILES = ./designs/src/adder_pipe_64bit/adder_pipe_64bit.v
export SDC_FILE = ./designs/asap7/adder_pipe_64bit/constraint.sdc

export ABC_AREA = 0
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 25
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
