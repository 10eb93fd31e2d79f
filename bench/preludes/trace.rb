# frozen_string_literal: true

require "objspace"
Program.around = ->(work) { ObjectSpace.trace_object_allocations { work.call } }
