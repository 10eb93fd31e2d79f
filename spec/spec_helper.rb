# frozen_string_literal: true

require "fileutils"
require "tmpdir"

Dir[File.join(__dir__, "support", "*.rb")].sort.each { |file| require file }
