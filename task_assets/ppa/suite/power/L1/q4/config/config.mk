export PLATFORM = asap7
export DESIGN_NAME = multi_pipe_8bit
export DESIGN_NICKNAME = multi_pipe_8bit
export VERILOG_FILES = ./designs/src/multi_pipe_8bit/multi_pipe_8bit.v
export SDC_FILE = ./designs/asap7/multi_pipe_8bit/constraint.sdc

export ABC_AREA = 0
export ASAP7_USE_VT = RVT
export CORE_UTILIZATION = 75
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 100
