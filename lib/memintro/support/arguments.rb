# frozen_string_literal: true

module Memintro
  # Checks arguments of users. Every error names the argument, the value and what is allowed.
  module Arguments
    # Larger whole numbers fit neither the tracker nor an Array. Messages name the limit only if it was exceeded.
    MOST = (2**63) - 1
    # More than thirty years. Ruby cannot sleep for any number of seconds.
    MOST_SECONDS = 1_000_000_000

    # @return [Integer, nil]
    def self.count(name, value, least: 0, most: nil, optional: false)
      return nil if value.nil? && optional

      most ||= MOST if value.is_a?(Integer) && value > MOST
      allowed = "an Integer from #{least}#{" to #{most}" if most}#{', or nil' if optional}"
      raise TypeError, "#{name} is #{shown(value)}; it must be #{allowed}" unless value.is_a?(Integer)
      return value if value >= least && (most.nil? || value <= most)

      raise ArgumentError, "#{name} is #{shown(value)}; it must be #{allowed}"
    end

    # @return [Numeric, nil]
    def self.seconds(name, value, optional: false)
      return nil if value.nil? && optional

      allowed = +"a number of seconds above 0#{', or nil' if optional}"
      unless value.is_a?(Integer) || value.is_a?(Float) || value.is_a?(Rational)
        raise TypeError, "#{name} is #{shown(value)}; it must be #{allowed}"
      end
      return value if value.positive? && value <= MOST_SECONDS

      allowed.sub!("above 0", "above 0, at most #{MOST_SECONDS}") if value.positive? && value != Float::INFINITY
      raise ArgumentError, "#{name} is #{shown(value)}; it must be #{allowed}"
    end

    # @return [Boolean]
    def self.flag(name, value)
      return value if [true, false].include?(value)

      raise TypeError, "#{name} is #{shown(value)}; it must be true or false"
    end

    # A name of a class, such as `Shop::Message`.
    CLASS_NAME = /\A\p{Upper}[^\s,:]*(?:::\p{Upper}[^\s,:]*)*\z/
    private_constant :CLASS_NAME

    # Which Ruby objects to track.
    #
    # @return [Boolean, Symbol, Array<Class, String>]
    def self.objects(name, value)
      return value if [true, false].include?(value)
      return :sampled if [:sampled, "sampled"].include?(value)

      # Made only if it is needed: a class may have an inspect of its own, and an Array thousands of names.
      wrong = lambda do
        "#{name} is #{shown(value)}; it must be true, false, :sampled, or an Array of classes and names of " \
          "classes"
      end
      raise TypeError, wrong.call unless Array === value
      raise ArgumentError, "#{wrong.call}, at least one" if value.empty?

      # Classes may have a hash and an eql? of their own, too.
      value.map { |one| class_or_name(one, wrong) }.uniq { |one| String === one ? one : ID.bind_call(one) }.freeze
    end

    ID = BasicObject.instance_method(:__id__)
    IS_SINGLETON = Module.instance_method(:singleton_class?)
    CLASS = Kernel.instance_method(:class)
    CLASS_TEXT = Module.instance_method(:inspect)
    private_constant :ID, :IS_SINGLETON, :CLASS, :CLASS_TEXT

    # @return [Boolean]
    def self.class_name?(text)
      text = text.dup.force_encoding(Encoding::UTF_8)
      text.valid_encoding? && text.match?(CLASS_NAME)
    end

    def self.class_or_name(value, wrong)
      case value
      when Class
        return value unless IS_SINGLETON.bind_call(value)

        problem = "is a singleton class, of which no object is made"
      when Module then problem = "is a module; name the classes that include it"
      when String, Symbol
        return value.to_s.dup.freeze if class_name?(value.to_s)

        problem = 'is no name such as "Shop::Message"'
      end
      raise problem ? ArgumentError : TypeError, "#{wrong.call}: #{shown(value)} #{problem || 'is neither'}"
    end
    private_class_method :class_or_name

    # @return [Array]
    def self.array(name, value)
      return value if value.is_a?(Array)

      raise TypeError, "#{name} is #{shown(value)}; it must be an Array"
    end

    # @return [Symbol]
    def self.choice(name, value, allowed)
      list = "it must be #{'one of ' if allowed.size > 1}#{allowed.map(&:inspect).join(', ')}"
      unless value.is_a?(Symbol) || value.is_a?(String)
        raise TypeError, "#{name} is #{shown(value)}; #{list}"
      end
      return value.to_sym if allowed.include?(value.to_sym)

      raise ArgumentError, "#{name} is #{shown(value)}; #{list}"
    end

    # @return [String, nil]
    def self.text(name, value, optional: false)
      return nil if value.nil? && optional

      text = value.respond_to?(:to_path) ? value.to_path : value
      return text if text.is_a?(String)

      raise TypeError, "#{name} is #{shown(value)}; it must be a String#{', or nil' if optional}"
    end

    # @return [#write]
    def self.output(value)
      return value if value.respond_to?(:write)

      raise TypeError, "#{shown(value)} cannot be written to; give an IO, a StringIO or another object with " \
                       "a method write"
    end

    # The message must be readable even if the value is huge.
    def self.shown(value)
      text = value.inspect
      text.size > 100 ? "#{text[0, 97]}..." : text
    rescue StandardError
      # Not each object has an inspect that works.
      "an object of #{CLASS_TEXT.bind_call(CLASS.bind_call(value))}"
    end
  end
end
