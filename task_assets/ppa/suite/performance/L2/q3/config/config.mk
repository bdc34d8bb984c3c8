export PLATFORM = asap7
export DESIGN_NAME = fifo_sync
export DESIGN_NICKNAME = fifo_sync
export VERILOG_FILES = ./designs/src/fifo_sync/fifo_sync.v
export SDC_FILE = ./designs/asap7/fifo_sync/constraint.sdc

export ABC_AREA = 0
export ASAP7_USE_VT = SLVT
export CORE_UTILIZATION = 25
export PLACE_DENSITY = 0.6
export SETUP_SLACK_MARGIN = 0
export TNS_END_PERCENT = 100
export RECOVER_POWER = 0
