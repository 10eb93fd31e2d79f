# frozen_string_literal: true

module Memintro
  module MemCheck
    # Finds the owner of a block by its stack. It is the gem's if
    #
    # 1. a frame is of the gem's library, and
    # 2. no function between it and malloc has called back into Ruby, and
    # 3. it is not below the library's `Init_` function, which runs once.
    # @api private
    class Rules
      # Functions of Ruby's that run Ruby code, or code of no gem.
      CALL_BACK = /\A(?:rb_(?:funcall|yield|block_call|lambda_call|iterate|eval_|obj_call_init|class_new_instance|
                      call_super|current_receiver|check_funcall|require|load|proc_call|method_call|obj_instance_e|
                      mod_(?:module_eval|include)|vm_(?:call|invoke|exec)|each|(?:exc_|enc_)?raise|sys_fail|warn|
                      (?:check_)?convert_type|inspect|obj_as_string|equal\z|hash\z|thread_create|gc\z|gc_start|
                      define_(?:method|module|class|singleton)|const_(?:get|missing)|autoload_load)|
                      vm_(?:exec|call0|invoke)|ruby_(?:run|exec|cleanup|finalize))/x.freeze
      INIT = /\AInit_/.freeze
      private_constant :CALL_BACK, :INIT

      # @param skipped [Array<String, Regexp>] more such functions
      def initialize(skipped = [])
        @patterns = [CALL_BACK, *skipped.map { |one| one.is_a?(Regexp) ? one : /\A#{Regexp.escape(one)}\z/ }]
      end

      # @param frames [Array<Frame>] from the inside
      # @return [Integer, nil] the place of the frame that the block belongs to; nil: it is not the gem's
      def culprit(frames)
        found = nil
        frames.each_with_index do |frame, index|
          if frame.watched
            return nil if frame.function&.match?(INIT)

            found ||= index
          elsif call_back?(frame)
            break
          end
        end
        found
      end

      # @param frames [Array<Frame>]
      # @return [Boolean] whether the library's `Init_` function is among those that led there
      def init?(frames)
        frames.any? { |frame| frame.watched && frame.function&.match?(INIT) }
      end

      private

      def call_back?(frame)
        frame.function && @patterns.any? { |pattern| frame.function.match?(pattern) }
      end
    end
  end
end
